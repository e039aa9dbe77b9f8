#include "bench/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/plot.h"

namespace quire::bench {
namespace {

std::vector<ComparedFigure> compare_figures(const RunData& a, const RunData& b) {
  std::vector<ComparedFigure> out;
  for (RunFigure& of : figures_of(a)) out.push_back({std::move(of.name), std::move(of.unit), of.value, {}});
  size_t after = 0;  // where a figure that only b has is put
  for (RunFigure& of : figures_of(b)) {
    const auto found = std::ranges::find(out, of.name, &ComparedFigure::name);
    if (found != out.end()) {
      found->b = of.value;
      after = static_cast<size_t>(found - out.begin()) + 1;
      continue;
    }
    const double value = of.value;
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(after++),
               ComparedFigure{std::move(of.name), std::move(of.unit), {}, value});
  }
  return out;
}

std::vector<ComparedSetting> compare_settings(const PageFacts& a, const PageFacts& b) {
  std::vector<ComparedSetting> out;
  for (const auto& [name, value] : a) out.push_back({name, value, {}});
  for (const auto& [name, value] : b) {
    const auto found = std::ranges::find(out, name, &ComparedSetting::name);
    if (found != out.end()) {
      found->b = value;
    } else {
      out.push_back({name, {}, value});
    }
  }
  // What a page says besides the settings.
  const auto is_setting = [](const ComparedSetting& each) {
    return each.name != "written" && each.name != "time";
  };
  std::erase_if(out, [&](const ComparedSetting& each) { return each.a == each.b || !is_setting(each); });
  return out;
}

void compare_requests(const RunData& a, const RunData& b, Comparison& out) {
  std::unordered_map<uint64_t, const RunRequest*> by_number;
  for (const RunRequest& request : a.records) by_number.emplace(request.number, &request);
  std::vector<Nanos> differences[3];
  for (const RunRequest& mine : b.records) {
    const auto found = by_number.find(mine.number);
    if (found == by_number.end()) continue;
    ++out.common;
    const RunRequest& other = *found->second;
    if (!mine.finished || !other.finished || mine.prompt_tokens != other.prompt_tokens) continue;
    ++out.paired;
    differences[0].push_back(mine.ttft() - other.ttft());
    if (mine.tpot && other.tpot) differences[1].push_back(*mine.tpot - *other.tpot);
    differences[2].push_back(mine.e2e() - other.e2e());
  }
  const char* names[] = {"TTFT", "TPOT", "E2E"};
  for (size_t i = 0; i < std::size(names); ++i) {
    std::vector<Nanos>& each = differences[i];
    if (each.empty()) continue;
    const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
    std::nth_element(each.begin(), middle, each.end());
    const auto slower = std::ranges::count_if(each, [](Nanos time) { return time > 0; });
    out.times.push_back({names[i], *middle, static_cast<uint64_t>(slower), each.size()});
  }
}

std::string text_or_dash(const std::optional<std::string>& text) { return text ? *text : "-"; }

}  // namespace

std::optional<double> ComparedFigure::ratio() const {
  if (!a || !b || *a == 0) return std::nullopt;
  return *b / *a;
}

Comparison compare(const RunData& a, const RunData& b) {
  Comparison out{.a = a.name,
                 .b = b.name,
                 .figures = compare_figures(a, b),
                 .settings = compare_settings(a.settings, b.settings),
                 .times = {},
                 .complaints_of_a = a.complaints,
                 .complaints_of_b = b.complaints};
  compare_requests(a, b, out);
  return out;
}

std::vector<std::vector<std::string>> figure_rows(const Comparison& of) {
  std::vector<std::vector<std::string>> rows;
  for (const ComparedFigure& each : of.figures) {
    const auto text = [](const std::optional<double>& value) { return value ? number_text(*value) : "-"; };
    const auto ratio = each.ratio();
    rows.push_back({each.unit.empty() ? each.name : fmt::format("{} {}", each.name, each.unit), text(each.a),
                    text(each.b), ratio ? fmt::format("{:.3f}", *ratio) : "-"});
  }
  return rows;
}

std::vector<std::string> pair_texts(const Comparison& of) {
  if (of.times.empty()) {
    return {fmt::format(
        "No request is paired: {} have the same number in both, and of those none the same prompt "
        "length and an end in both.",
        with_commas(of.common))};
  }
  std::vector<std::string> out;
  for (const PairedTime& each : of.times) {
    const std::string takes =
        each.median == 0 ? "as long"
                         : fmt::format("{:.2f} ms {}", std::abs(static_cast<double>(each.median)) / 1e6,
                                       each.median < 0 ? "less" : "more");
    out.push_back(
        fmt::format("{}: in the median of {} pairs of the same request the second takes {}; it is slower for "
                    "{:.1f} % of them",
                    each.name, with_commas(each.pairs), takes, percent(each.slower, each.pairs)));
  }
  return out;
}

std::string comparison_html(const Comparison& of) {
  std::string out = page_part("Two runs side by side");
  out += fmt::format("<p class=\"quiet\">{} (first) and {} (second)</p>\n<div class=\"panel\">",
                     html_text(of.a), html_text(of.b));
  out += html_table({{"", of.a, of.b, "ratio"}, figure_rows(of)}, "Two runs side by side");
  for (const std::string& each : pair_texts(of)) out += fmt::format("<p>{}</p>\n", html_text(each));
  out += "</div>\n";
  if (of.settings.empty()) return out;
  PlotTable settings{{"", of.a, of.b}, {}};
  for (const ComparedSetting& each : of.settings) {
    settings.rows.push_back({each.name, text_or_dash(each.a), text_or_dash(each.b)});
  }
  return out + page_part("Settings that differ") + "<div class=\"panel\">" +
         html_table(settings, "Settings that differ") + "</div>\n";
}

}  // namespace quire::bench
