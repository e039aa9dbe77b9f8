#include "backend/sim/cost_file.h"

#include <algorithm>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/json.h"
#include "base/output_file.h"

namespace quire::backend::sim {
namespace {

constexpr int64_t kVersion = 2;
constexpr size_t kMostNumbers = 1000;                 // of a list
constexpr std::string_view kSimulated = "simulated";  // what SimBackend::describe begins with

template <class Number>
std::vector<Number> numbers_of(const JsonObject& object, std::string_view key) {
  const json::value* const value = object.find(key);
  const json::array* const list = value == nullptr ? nullptr : value->if_array();
  if (list == nullptr || list->size() > kMostNumbers) throw object.error(key, "must be a list of numbers");
  std::vector<Number> out;
  for (const json::value& each : *list) {
    boost::system::error_code failed;
    out.push_back(each.to_number<Number>(failed));
    if (failed) throw object.error(key, fmt::format("{} is no such number", json::serialize(each)));
  }
  return out;
}

PhaseCost phase_of(const JsonObject& object) {
  PhaseCost phase;
  PhaseCost::for_each_term(phase, [&](std::string_view name, double& cost) { cost = object.number(name); });
  phase.token = numbers_of<double>(object, "token");
  return phase;
}

json::object to_json(const PhaseCost& phase) {
  json::object out;
  PhaseCost::for_each_term(phase, [&](std::string_view name, double cost) { out[name] = cost; });
  out["token"] = json::array(phase.token.begin(), phase.token.end());
  return out;
}

StepWork counts_of(const JsonObject& object) {
  StepWork work;
  StepWork::for_each_count(work, [&](std::string_view name, uint64_t& count) {
    count = static_cast<uint64_t>(object.integer(name, 0, INT64_MAX));
  });
  return work;
}

json::object to_json(const StepWork& work) {
  json::object out;
  StepWork::for_each_count(work, [&](std::string_view name, uint64_t count) { out[name] = count; });
  return out;
}

std::vector<std::string> kinds_of(const JsonObject& root) {
  const Error fault = root.error("kinds", fmt::format("must be a list of {}", fmt::join(kStepKinds, ", ")));
  const json::value* const value = root.find("kinds");
  if (!value->is_array() || value->get_array().size() > kStepKinds.size()) throw fault;
  std::vector<std::string> out;
  for (const json::value& each : value->get_array()) {
    if (!each.is_string()) throw fault;
    out.emplace_back(each.get_string());
    if (std::ranges::find(kStepKinds, out.back()) == kStepKinds.end()) throw fault;
    if (std::ranges::find(out, out.back()) != out.end() - 1) {
      throw root.error("kinds", fmt::format("has '{}' twice", out.back()));
    }
  }
  return out;
}

/// The least of each count, which are no more than the most.
StepWork least_of(const JsonObject& object, const StepWork& most) {
  const StepWork least = counts_of(object);
  std::vector<uint64_t> bounds;
  StepWork::for_each_count(most, [&](std::string_view, uint64_t count) { bounds.push_back(count); });
  size_t at = 0;
  StepWork::for_each_count(least, [&](std::string_view name, uint64_t count) {
    const uint64_t bound = bounds[at++];
    if (count > bound) throw object.error(name, fmt::format("is {}, and the most is {}", count, bound));
  });
  return least;
}

FitError error_of(const JsonObject& object) {
  return {.kind = object.string("kind"),
          .steps = static_cast<uint64_t>(object.integer("steps", 0, INT64_MAX)),
          .median = object.number("median"),
          .p90 = object.number("p90"),
          .bias = object.number("bias")};
}

/// Leaves what follows the first `what`; false, and all of the text, if it is not there.
bool skip_past(std::string_view& text, std::string_view what) {
  const size_t at = text.find(what);
  if (at == std::string_view::npos) return false;
  text.remove_prefix(at + what.size());
  return true;
}

/// "" if `what` is not there.
std::string text_before(std::string_view text, std::string_view what) {
  const size_t at = text.find(what);
  return std::string(at == std::string_view::npos ? "" : text.substr(0, at));
}

}  // namespace

DeviceSetup setup_in(std::string_view device) {
  // "9 parameters, int8 weights, K/V in bf16, kernels avx2 on 2 threads", or of a GPU "9 parameters, bf16
  // weights and K/V on NVIDIA A10G".
  const std::string counted = text_before(device, " parameters, ");
  if (!skip_past(device, " parameters, ")) return {};
  DeviceSetup out;
  out.parameters = counted.substr(counted.rfind(' ') + 1);
  out.weights = text_before(device, " weights");
  std::string_view kv = device;
  if (skip_past(kv, ", K/V in ")) {
    out.kv = kv.substr(0, kv.find(','));
    if (out.kv == "i8") out.kv = "int8";  // as --kv-cache-dtype has it
  } else if (device.find(" weights and K/V") != std::string_view::npos) {
    out.kv = out.weights;
  }
  std::string_view kernels = device;
  if (skip_past(kernels, ", kernels ")) out.kernels = text_before(kernels, " on ");
  const std::string before = text_before(device, " threads");
  out.threads = before.substr(before.rfind(' ') + 1);
  return out;
}

std::string check_cost_file_for(const CostRun& run, const CostFile& file, const std::filesystem::path& path,
                                bool force) {
  std::string differs;
  const auto compare = [&](const char* what, const std::string& of_file, const std::string& of_run) {
    if (of_run.empty() || of_file == of_run) return;
    differs += fmt::format("{} the {} is '{}', and this run's is '{}'", differs.empty() ? "" : ";", what,
                           of_file, of_run);
  };
  compare("model", file.cost.model, run.model);
  compare("machine", file.cost.machine, run.machine);
  const auto compare_setup = [&](const char* what, const std::string& of_file, const std::string& of_run) {
    if (!of_file.empty()) compare(what, of_file, of_run);
  };
  const DeviceSetup setup = setup_in(file.device);
  compare_setup("number of parameters", setup.parameters, run.setup.parameters);
  compare_setup("format of the weights", setup.weights, run.setup.weights);
  compare_setup("type of K/V", setup.kv, run.setup.kv);
  compare_setup("level of the kernels", setup.kernels, run.setup.kernels);
  compare_setup("number of threads", setup.threads, run.setup.threads);
  const std::string_view device = std::string_view(file.device).substr(0, file.device.find(kKeptWarning));
  const bool is_simulated = device.starts_with(kSimulated);
  if (is_simulated && run.runs_on == RunsOn::kMachine) {
    differs +=
        fmt::format("{} the device is '{}', and this run's computes", differs.empty() ? "" : ";", device);
  }
  const std::string what = fmt::format("{}: is a cost model of something else:{}", path.string(), differs);
  if (!differs.empty() && !force) throw Error(fmt::format("{}; --force takes its times all the same", what));
  std::vector<std::string> warnings;
  if (!differs.empty())
    warnings.push_back(fmt::format("{}; its times are taken all the same (--force)", what));
  if (is_simulated && run.runs_on == RunsOn::kNothing) {
    warnings.push_back(
        fmt::format("{}: its times are those of a simulated device ({})", path.string(), device));
  }
  std::string_view kept = file.device;
  if (skip_past(kept, kKeptWarning)) {
    warnings.push_back(fmt::format("{}: its steps were logged with a warning: {}", path.string(), kept));
  }
  return fmt::format("{}", fmt::join(warnings, "; "));
}

CostFile read_cost_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  // What calibrate makes a cost model of, which is easily taken for it.
  if (text.starts_with(R"({"step_log":)")) {
    throw file_error(path, "is a step log: quire calibrate --from makes a cost model of it");
  }
  const json::value value = parse_json(text, path);
  const JsonObject root(value, path);
  if (!root.has("quire_cost")) throw Error(path.string() + ": is no cost model: quire calibrate makes one");
  if (const int64_t version = root.integer("quire_cost", 0, INT64_MAX); version != kVersion) {
    throw root.error("quire_cost",
                     fmt::format("is {}, not {}: it is of another version of quire", version, kVersion));
  }
  CostFile file;
  file.cost.model = root.string("model");
  file.cost.machine = root.string("machine");
  file.device = root.string("device");
  file.build = root.string("build");
  file.steps = static_cast<uint64_t>(root.integer("steps", 0, INT64_MAX));
  file.left_out = static_cast<uint64_t>(root.integer("left_out", 0, INT64_MAX));
  file.cost.knots = numbers_of<uint64_t>(root, "knots");
  file.cost.device = phase_of(root.object("device_ns"));
  file.cost.host = phase_of(root.object("host_ns"));
  file.cost.most = counts_of(root.object("most"));
  if (root.has("least")) file.cost.least = least_of(root.object("least"), file.cost.most);
  if (root.has("kinds")) file.cost.kinds = kinds_of(root);  // older files lack both
  file.cost.deviations = numbers_of<double>(root, "deviations");
  if (root.has("slow")) {  // a file may be written by hand, for a device that nothing disturbs
    const JsonObject slow = root.object("slow");
    file.cost.slow_part = slow.number("part");
    file.cost.slow_factor = slow.number("factor");
  }
  const json::value* const errors = root.find("errors");
  if (errors == nullptr || !errors->is_array()) throw root.error("errors", "must be a list");
  for (const json::value& each : errors->get_array()) {
    file.errors.push_back(error_of(JsonObject(each, path, "errors")));
  }
  try {
    file.cost.check();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
  return file;
}

void write_cost_file(const std::filesystem::path& path, const CostFile& file) {
  json::array errors;
  for (const FitError& each : file.errors) {
    errors.push_back(json::object{{"kind", each.kind},
                                  {"steps", each.steps},
                                  {"median", each.median},
                                  {"p90", each.p90},
                                  {"bias", each.bias}});
  }
  const json::object root{
      {"quire_cost", kVersion},
      {"model", file.cost.model},
      {"machine", file.cost.machine},
      {"device", file.device},
      {"build", file.build},
      {"steps", file.steps},
      {"left_out", file.left_out},
      {"errors", std::move(errors)},
      {"knots", json::array(file.cost.knots.begin(), file.cost.knots.end())},
      {"device_ns", to_json(file.cost.device)},
      {"host_ns", to_json(file.cost.host)},
      {"most", to_json(file.cost.most)},
      {"least", to_json(file.cost.least)},
      {"kinds", json::array(file.cost.kinds.begin(), file.cost.kinds.end())},
      {"deviations", json::array(file.cost.deviations.begin(), file.cost.deviations.end())},
      {"slow", json::object{{"part", file.cost.slow_part}, {"factor", file.cost.slow_factor}}}};
  write_output_file(path, kCostFile, json::serialize(root) + "\n");
}

}  // namespace quire::backend::sim
