#include "bench/load_report.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <utility>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "sim/report_json.h"

namespace quire::bench {
namespace {

namespace json = boost::json;

/// The same for errors that differ in numbers alone.
std::string without_numbers(const std::string& error) {
  std::string out;
  for (const char c : error) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!is_digit) out += c;
    if (is_digit && !out.ends_with('0')) out += '0';
  }
  return out;
}

}  // namespace

std::optional<Nanos> LoadSample::tpot() const {
  if (tokens < 2) return std::nullopt;
  return (end - first) / (tokens - 1);
}

LoadReport report_load(std::span<const LoadSample> samples, uint64_t requests, Nanos elapsed,
                       const sim::Slo& slo) {
  LoadReport report;
  report.requests = requests;
  report.unfinished = requests - samples.size();
  report.elapsed = std::max<Nanos>(1, elapsed);
  report.slo = slo;
  std::map<std::string, LoadErrors> errors;
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> itl;
  std::vector<Nanos> e2e;
  for (const LoadSample& sample : samples) {
    if (!sample.ok()) {
      ++report.failed;
      LoadErrors& alike = errors[without_numbers(sample.error)];
      if (++alike.count == 1) alike.example = sample.error;
      continue;
    }
    ++report.finished;
    report.good += sample.meets(slo) ? 1 : 0;
    report.short_answers += sample.tokens < sample.wanted_tokens ? 1 : 0;
    report.tokens_said = report.tokens_said && sample.tokens_said;
    report.prompt_tokens += sample.prompt_tokens;
    report.output_tokens += sample.tokens;
    ttft.push_back(sample.ttft());
    e2e.push_back(sample.e2e());
    if (const auto each = sample.tpot()) tpot.push_back(*each);
    itl.insert(itl.end(), sample.gaps.begin(), sample.gaps.end());
  }
  for (auto& [shape, alike] : errors) report.errors.push_back(std::move(alike));
  std::ranges::stable_sort(report.errors, std::greater(), &LoadErrors::count);
  report.ttft = sim::percentiles(std::move(ttft));
  report.tpot = sim::percentiles(std::move(tpot));
  report.itl = sim::percentiles(std::move(itl));
  report.e2e = sim::percentiles(std::move(e2e));
  return report;
}

std::vector<std::string> complaints_of(const LoadReport& report) {
  std::vector<std::string> out;
  if (std::string text = sim::interruption_text(report.unfinished, report.requests); !text.empty()) {
    out.push_back(std::move(text));
  }
  for (const LoadErrors& each : report.errors)
    out.push_back(fmt::format("{} failed: {}", each.count, each.example));
  if (report.short_answers > 0) {
    out.push_back(fmt::format("{} answers were shorter than asked for.", report.short_answers));
  }
  return out;
}

json::object to_json(const LoadReport& report) {
  json::object root{{"requests", report.requests},
                    {"finished", report.finished},
                    {"failed", report.failed},
                    {"unfinished", report.unfinished},
                    {"short_answers", report.short_answers},
                    {"elapsed_ns", report.elapsed},
                    {"seconds", report.seconds()},
                    {"prompt_tokens", report.prompt_tokens},
                    {"output_tokens", report.output_tokens},
                    {"tokens_are_pieces", !report.tokens_said},
                    {"output_tokens_per_second", report.per_second(report.output_tokens)},
                    {"requests_per_second", report.per_second(report.finished)},
                    {"slo", sim::slo_json(report.slo)},
                    {"good", nullptr},
                    {"good_requests_per_second", nullptr}};
  if (report.slo.any()) {
    root["good"] = report.good;
    root["good_requests_per_second"] = report.per_second(report.good);
  }
  const std::pair<const char*, const sim::Percentiles*> times[] = {
      {"ttft_ns", &report.ttft}, {"tpot_ns", &report.tpot}, {"itl_ns", &report.itl}, {"e2e_ns", &report.e2e}};
  for (const auto& [name, of] : times) root[name] = sim::times_json(*of);
  json::array& errors = root["errors"].emplace_array();
  for (const LoadErrors& each : report.errors) {
    errors.push_back({{"count", each.count}, {"example", each.example}});
  }
  return root;
}

void add_requests(json::object& root, std::span<const LoadSample> samples) {
  root["record_fields"] = {"arrival_ns",    "first_token_ns", "finished_ns", "prompt_tokens",
                           "output_tokens", "error",          "request",     "cached_tokens"};
  json::array& records = root["records"].emplace_array();
  for (const LoadSample& sample : samples) {
    records.push_back({sample.arrival, sample.first, sample.end, sample.prompt_tokens, sample.tokens,
                       sample.ok() ? json::value() : json::value(sample.error), sample.number,
                       sample.cached_tokens ? json::value(*sample.cached_tokens) : json::value()});
  }
}

}  // namespace quire::bench
