#include "bench/run_file.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/json.h"
#include "bench/time_parts.h"
#include "record/display_text.h"
#include "sim/report.h"

namespace quire::bench {
namespace {

constexpr int64_t kMostTime = int64_t{1} << 60;  // nanoseconds
constexpr int64_t kMostCount = int64_t{1} << 53;

uint64_t whole_number(const JsonObject& root, std::string_view key) {
  return static_cast<uint64_t>(root.integer(key, 0, kMostCount));
}

std::optional<uint64_t> whole_number_if(const JsonObject& root, std::string_view key) {
  if (!root.has(key)) return std::nullopt;
  return whole_number(root, key);
}

sim::Percentiles read_times(const JsonObject& of) {
  const auto time = [&](std::string_view key) { return of.integer(key, -kMostTime, kMostTime); };
  return {time("mean"), time("p50"), time("p90"), time("p99"), time("max"), true};
}

std::optional<sim::Percentiles> read_times_if(const JsonObject& root, std::string_view key) {
  if (!root.has(key)) return std::nullopt;
  return read_times(root.object(key));
}

sim::Slo slo_of(const JsonObject& root) {
  sim::Slo slo;
  if (!root.has("slo")) return slo;
  const JsonObject of = root.object("slo");
  const auto limit = [&](std::string_view key) -> std::optional<Nanos> {
    if (!of.has(key)) return std::nullopt;
    return of.integer(key, 0, kMostTime);
  };
  slo.ttft = limit("ttft_ns");
  slo.tpot = limit("tpot_ns");
  slo.e2e = limit("e2e_ns");
  slo.attainment = of.number_or("attainment", slo.attainment);
  return slo;
}

std::string setting_text(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

/// The members of an object as settings; those that are objects themselves are left out.
void add_settings(const JsonObject& of, std::string_view prefix, PageFacts& settings) {
  for (const auto& [key, value] : of.raw()) {
    if (!value.is_object())
      settings.emplace_back(fmt::format("{}{}", prefix, std::string_view(key)), setting_text(value));
  }
}

/// Where the fields of a record are.
class RecordFields {
 public:
  explicit RecordFields(const JsonObject& root) : root_(root) {
    const json::value* names = root.find("record_fields");
    if (names == nullptr || !names->is_array())
      throw root.error("record_fields", "an array of names was expected");
    for (const json::value& name : names->get_array()) {
      if (!name.is_string()) throw root.error("record_fields", "a name was expected");
      names_.emplace_back(name.get_string());
    }
  }
  size_t size() const { return names_.size(); }
  /// Its place in a record, size() if the file's records lack it.
  size_t find(std::string_view name) const {
    return static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
  }
  size_t required(std::string_view name) const {
    const size_t at = find(name);
    if (at == size()) throw root_.error("record_fields", fmt::format("has no {}", name));
    return at;
  }

 private:
  const JsonObject& root_;
  std::vector<std::string> names_;
};

/// A record of the file, with errors that name it.
class Record {
 public:
  Record(const JsonObject& root, const json::value& value, size_t number, size_t size)
      : root_(root), number_(number), value_(value.if_array()) {
    if (value_ == nullptr || value_->size() != size)
      throw error(fmt::format("{} fields were expected", size));
  }
  int64_t integer(size_t at, int64_t least, int64_t most) const {
    json::error_code failed;
    const auto whole = (*value_)[at].to_number<int64_t>(failed);
    if (failed || whole < least || whole > most) {
      throw error(fmt::format("field {}: a whole number from {} to {} was expected", at + 1, least, most));
    }
    return whole;
  }
  bool is_null(size_t at) const { return (*value_)[at].is_null(); }
  Error error(std::string_view what) const {
    return root_.error("records", fmt::format("record {}: {}", number_, what));
  }

 private:
  const JsonObject& root_;
  size_t number_;
  const json::array* value_;
};

void check_times(const Record& record, const RunRequest& request) {
  if (!request.finished) return;
  if (request.arrival < 0 || request.first < request.arrival || request.end < request.first) {
    throw record.error("its times are not in order");
  }
}

/// What is common to the records of both kinds. `failed`: the field that is null for requests that went well.
void read_records(const JsonObject& root, uint32_t choices, std::string_view failed, RunData& run) {
  const json::value* records = root.find("records");
  if (records == nullptr) return;
  if (!records->is_array()) throw root.error("records", "an array was expected");
  const RecordFields fields(root);
  const size_t arrival = fields.required("arrival_ns");
  const size_t first = fields.required("first_token_ns");
  const size_t end = fields.required("finished_ns");
  const size_t prompt = fields.required("prompt_tokens");
  const size_t output = fields.required("output_tokens");
  const size_t fault = fields.required(failed);
  const size_t cached = fields.find("cached_tokens");
  const size_t number = fields.find("request");
  TimeParts tokens(std::max<Nanos>(1, static_cast<Nanos>(run.seconds * 1e9)));
  for (const json::value& value : records->get_array()) {
    const Record record(root, value, run.records.size() + 1, fields.size());
    const auto time = [&](size_t at) { return record.integer(at, -1, kMostTime); };
    RunRequest request{.number = run.records.size() + 1,
                       .arrival = time(arrival),
                       .first = time(first),
                       .end = time(end),
                       .prompt_tokens = static_cast<uint32_t>(record.integer(prompt, 0, UINT32_MAX))};
    if (number < fields.size()) request.number = static_cast<uint64_t>(record.integer(number, 1, kMostCount));
    request.finished = record.is_null(fault) && request.end >= 0;
    request.refused = !record.is_null(fault) && request.end < 0;
    check_times(record, request);
    if (cached < fields.size() && request.finished && !record.is_null(cached)) {
      request.cached_tokens = static_cast<uint32_t>(record.integer(cached, 0, UINT32_MAX));
    }
    const int64_t made = record.integer(output, 0, UINT32_MAX);
    const int64_t each = made / choices;
    if (request.finished && each >= 2) request.tpot = (request.end - request.first) / (each - 1);
    if (request.finished && made > 0)
      tokens.add_evenly(request.first, request.end, static_cast<double>(made));
    run.records.push_back(request);
  }
  run.output_rate = tokens.per_second();
}

void read_common(const JsonObject& root, RunData& run) {
  run.requests = whole_number(root, "requests");
  run.finished = whole_number(root, "finished");
  run.prompt_tokens = whole_number(root, "prompt_tokens");
  run.output_tokens = whole_number(root, "output_tokens");
  run.seconds = static_cast<double>(root.integer("elapsed_ns", 0, kMostTime)) / 1e9;
  run.slo = slo_of(root);
  if (run.slo.any()) run.good = whole_number(root, "good");
  if (run.finished > 0) {
    run.ttft = read_times(root.object("ttft_ns"));
    run.tpot = read_times_if(root, "tpot_ns");
    run.e2e = read_times(root.object("e2e_ns"));
    run.itl = read_times_if(root, "itl_ns");
    run.queue = read_times_if(root, "queue_ns");
  }
  run.no_timeline = "the file does not have them";
  if (root.has("flags")) add_settings(root.object("flags"), "", run.settings);
  const bool has_slo = std::ranges::count(run.settings, "--slo", &PageFacts::value_type::first) > 0;
  if (run.slo.any() && !has_slo) run.settings.emplace_back("--slo", run.slo.text());
}

/// Says so if it was broken off.
void note_interruption(RunData& run) {
  const uint64_t unfinished = run.requests - std::min(run.requests, run.ended());
  if (std::string text = sim::interruption_text(unfinished, run.requests); !text.empty()) {
    run.complaints.insert(run.complaints.begin(), std::move(text));
  }
}

RunData read_load(const JsonObject& root) {
  if (root.has("rows"))
    throw root.error("rows", "is a table of several loads, which cannot be laid over one run");
  RunData run{.title = "A server under load", .name = {}, .refused = "failed", .settings = {}};
  run.settings = {{"model", root.string("model")}, {"server", root.string("url")}};
  read_common(root, run);
  run.not_finished = whole_number(root, "failed");
  run.tokens_said = !root.boolean_or("tokens_are_pieces", false);
  note_interruption(run);
  read_records(root, 1, "error", run);
  return run;
}

/// Why the times of a simulated run may not be right: as the run itself said.
std::vector<std::string> complaints_of_times(const JsonObject& root) {
  std::vector<std::string> out;
  const std::string text = sim::extrapolation_text(whole_number_if(root, "extrapolated_steps").value_or(0),
                                                   whole_number_if(root, "steps").value_or(0));
  if (!text.empty()) out.push_back(text + ".");
  const std::string warning = root.object("cost").string_or("warning", "");
  if (!warning.empty()) out.push_back(fmt::format("Warning: {}.", record::valid_utf8(warning)));
  return out;
}

RunData read_simulation(const JsonObject& root) {
  RunData run{.title = "A simulated run", .name = {}, .refused = "refused", .settings = {}};
  read_common(root, run);
  add_settings(root.object("scheduler"), "scheduler: ", run.settings);
  add_settings(root.object("cost"), "cost: ", run.settings);
  run.not_finished = whole_number(root, "refused");
  run.queried_tokens = whole_number_if(root, "prefix_queried_tokens");
  run.hit_tokens = whole_number_if(root, "prefix_hit_tokens");
  run.hit_bound = whole_number_if(root, "prefix_hit_tokens_bound");
  run.preemptions = whole_number_if(root, "preemptions");
  run.evictions = whole_number_if(root, "evictions");
  run.complaints = complaints_of_times(root);
  note_interruption(run);
  read_records(root, static_cast<uint32_t>(root.integer_or("choices", 1, 1, 1 << 20)), "refused", run);
  return run;
}

}  // namespace

RunData read_run(const std::filesystem::path& path) {
  const json::value value = read_json_file(path);
  const JsonObject root(value, path);
  const bool is_load = root.has("url") && root.has("model");
  if (!is_load && !root.has("scheduler")) {
    throw file_error(
        path, root.has("sweep")
                  ? "is a sweep of quire simulate; what is wanted is one run"
                  : "is neither a result of quire simulate --json nor one of quire bench serve --json");
  }
  RunData run = is_load ? read_load(root) : read_simulation(root);
  run.name = record::valid_utf8(path.filename().string());
  return run;
}

}  // namespace quire::bench
