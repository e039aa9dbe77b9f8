#include "cli/compare_runs.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/output_file.h"
#include "bench/page_frame.h"
#include "bench/run_comparison.h"
#include "bench/run_file.h"
#include "bench/run_page.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/text_table.h"
#include "record/display_text.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr FileKind kComparison{"comparison of quire simulate", "{\"comparison\":{"};

template <class T>
json::value value_or_null(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value();
}

json::array list_of(const std::vector<std::string>& texts) { return json::array(texts.begin(), texts.end()); }

json::object to_json(const bench::Comparison& of) {
  json::object figures;
  for (const bench::ComparedFigure& each : of.figures) {
    figures[each.unit.empty() ? each.name : each.name + " " + each.unit] = {
        {"a", value_or_null(each.a)}, {"b", value_or_null(each.b)}, {"ratio", value_or_null(each.ratio())}};
  }
  json::object settings;
  for (const bench::ComparedSetting& each : of.settings) {
    settings[each.name] = {{"a", value_or_null(each.a)}, {"b", value_or_null(each.b)}};
  }
  json::object times;
  for (const bench::PairedTime& each : of.times) {
    times[each.name] = {
        {"pairs", each.pairs}, {"median_difference_ns", each.median}, {"slower_in_b", each.slower}};
  }
  json::object inner{{"a", of.a},
                     {"b", of.b},
                     {"complaints", {{"a", list_of(of.complaints_of_a)}, {"b", list_of(of.complaints_of_b)}}},
                     {"figures", std::move(figures)},
                     {"settings", std::move(settings)},
                     {"common_requests", of.common},
                     {"paired_requests", of.paired},
                     {"paired_times", std::move(times)}};
  return {{"comparison", std::move(inner)}};
}

void print_comparison(const bench::Comparison& of) {
  fmt::print("A  {}\nB  {}\n\n", record::printable(of.a), record::printable(of.b));
  fmt::print("{}", TextTable{{"figure", "A", "B", "B/A"}, figure_rows(of)}.text(1));
  if (!of.settings.empty()) {
    TextTable table{{"setting", "A", "B"}, {}};
    const auto text = [](const std::optional<std::string>& value) {
      return value ? record::printable(*value) : std::string("-");
    };
    for (const bench::ComparedSetting& each : of.settings) {
      table.rows.push_back({record::printable(each.name), text(each.a), text(each.b)});
    }
    fmt::print("\n{}", table.text(3));
  }
  fmt::print("\n");
  for (const std::string& each : pair_texts(of)) fmt::print("{}\n", each);
  for (const std::string& each : of.complaints_of_a) fmt::print("\nA: {}\n", record::printable(each));
  for (const std::string& each : of.complaints_of_b) fmt::print("\nB: {}\n", record::printable(each));
}

}  // namespace

int compare_runs(const CompareRuns& asked) {
  check_output_file(asked.json_file, kComparison);
  check_output_file(asked.html_file, bench::page_kind());
  const OutputFile outputs[] = {{"--json", asked.json_file}, {"--html", asked.html_file}};
  refuse_same_file(outputs);
  bench::RunData a = bench::read_run(asked.a);
  bench::RunData b = bench::read_run(asked.b);
  if (a.name == b.name) {
    a.name = record::valid_utf8(asked.a);
    b.name = record::valid_utf8(asked.b);
  }
  const bench::Comparison comparison = bench::compare(a, b);
  print_comparison(comparison);
  std::fflush(stdout);
  if (!asked.json_file.empty()) {
    write_output_file(asked.json_file, kComparison, json::serialize(to_json(comparison)) + "\n");
  }
  if (!asked.html_file.empty()) {
    write_output_file(asked.html_file, bench::page_kind(), bench::comparison_page(a, b));
  }
  return 0;
}

void settle_compare(const Flags& command) {
  for (const auto& [flag, value] : command.given()) {
    if (flag == "--compare" || flag == "--json" || flag == "--html") continue;
    refuse_if_given(command, flag, "with --compare, which reads two results and runs nothing");
  }
}

}  // namespace quire::cli
