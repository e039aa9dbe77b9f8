#include "bench/load_table.h"

#include <optional>

#include <fmt/format.h>

#include "base/amounts.h"
#include "bench/plot.h"

namespace quire::bench {
namespace {

namespace json = boost::json;

double to_ms(Nanos time) { return static_cast<double>(time) / 1e6; }

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}", 100 * *share) : "-";
}

std::string bytes(const std::optional<uint64_t>& count) { return count ? human_bytes(*count) : "-"; }

/// The cells of a row, in the order of the head.
std::vector<std::string> cells(const LoadRow& row, const LoadRow& first) {
  const LoadReport& report = row.report;
  using sim::Percentiles;
  const auto ms = [](const Percentiles& of, Nanos Percentiles::*which) {
    return of.any ? fmt::format("{:.1f}", to_ms(of.*which)) : std::string("-");
  };
  return {std::to_string(row.concurrency),
          fmt::format("{:.1f}", row.tokens_per_second()),
          fmt::format("{:.2f}", ratio(row, first)),
          ms(report.ttft, &Percentiles::p50),
          ms(report.ttft, &Percentiles::p99),
          ms(report.tpot, &Percentiles::p50),
          ms(report.tpot, &Percentiles::p99),
          share_text(row.server.kv_usage_peak),
          bytes(row.server.resident),
          bytes(row.server.resident_peak)};
}

std::vector<std::string> head(uint32_t first) {
  return {"clients",  "tokens/s", fmt::format("x {}", first),
          "TTFT p50", "TTFT p99", "TPOT p50",
          "TPOT p99", "K/V %",    "resident",
          "peak"};
}

std::string line_of(const std::vector<std::string>& cells) {
  constexpr int kWidths[] = {7, 10, 7, 10, 10, 9, 9, 7, 11, 11};
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i)
    out += fmt::format("{}{:>{}}", i == 0 ? "" : " ", cells[i], kWidths[i]);
  return out;
}

/// A figure of each row over its clients.
template <class Value>
PlotSeries series_of(std::string name, std::span<const LoadRow> rows, Value&& value) {
  PlotSeries out{std::move(name), {}};
  for (const LoadRow& row : rows) {
    const std::optional<double> at = value(row);
    if (at) out.points.emplace_back(row.concurrency, *at);
  }
  return out;
}

std::string plots(std::span<const LoadRow> rows) {
  const PlotAxis clients{.label = "clients at once", .is_log = true, .least = 1};
  const PlotAxis log_ms{.label = "milliseconds", .is_log = true};
  const auto ms_series = [&](const char* name, sim::Percentiles LoadReport::*of,
                             Nanos sim::Percentiles::*which) {
    return series_of(name, rows, [=](const LoadRow& row) -> std::optional<double> {
      const sim::Percentiles& times = row.report.*of;
      if (!times.any) return std::nullopt;
      return to_ms(times.*which);
    });
  };
  const PlotSeries rate[] = {
      series_of("tokens/s", rows, [](const LoadRow& row) { return std::optional(row.tokens_per_second()); })};
  const PlotSeries first[] = {ms_series("p50", &LoadReport::ttft, &sim::Percentiles::p50),
                              ms_series("p99", &LoadReport::ttft, &sim::Percentiles::p99)};
  const PlotSeries each[] = {ms_series("p50", &LoadReport::tpot, &sim::Percentiles::p50),
                             ms_series("p99", &LoadReport::tpot, &sim::Percentiles::p99)};
  const auto mebibytes = [](const std::optional<uint64_t>& count) -> std::optional<double> {
    if (!count) return std::nullopt;
    return static_cast<double>(*count) / 0x1p20;
  };
  const PlotSeries memory[] = {
      series_of("at the end", rows, [&](const LoadRow& row) { return mebibytes(row.server.resident); }),
      series_of("at most", rows, [&](const LoadRow& row) { return mebibytes(row.server.resident_peak); })};
  const PlotSeries pool[] = {series_of("K/V", rows, [](const LoadRow& row) -> std::optional<double> {
    if (!row.server.kv_usage_peak) return std::nullopt;
    return 100 * *row.server.kv_usage_peak;
  })};
  return plot_figure("Output tokens per second", clients, {"tokens/s"}, rate, PlotMark::kLine) +
         plot_figure("To the first token (TTFT)", clients, log_ms, first, PlotMark::kLine) +
         plot_figure("Per further token (TPOT)", clients, log_ms, each, PlotMark::kLine) +
         plot_figure("Most K/V held by requests", clients, {"% of the pool"}, pool, PlotMark::kLine) +
         plot_figure("Resident memory of the server", clients, {"MiB"}, memory, PlotMark::kLine);
}

}  // namespace

double ratio(const LoadRow& row, const LoadRow& first) {
  const double one = first.tokens_per_second();
  return one > 0 ? row.tokens_per_second() / one : 0;
}

std::string load_table_head(uint32_t first) { return line_of(head(first)); }

std::string load_table_line(const LoadRow& row, const LoadRow& first) { return line_of(cells(row, first)); }

json::array to_json(std::span<const LoadRow> rows) {
  const auto or_null = [](const auto& value) { return value ? json::value(*value) : json::value(); };
  json::array out;
  for (const LoadRow& row : rows) {
    json::object each{{"concurrency", row.concurrency}, {"ratio", ratio(row, rows.front())}};
    for (auto& [key, value] : to_json(row.report)) each[key] = value;
    each["kv_cache_usage_peak"] = or_null(row.server.kv_usage_peak);
    each["resident_bytes"] = or_null(row.server.resident);
    each["resident_peak_bytes"] = or_null(row.server.resident_peak);
    out.push_back(std::move(each));
  }
  return out;
}

std::string load_table_page(const PageFacts& facts, std::span<const LoadRow> rows) {
  std::string out = page_head("A server under increasing load");
  for (const LoadRow& row : rows) {
    const std::vector<std::string> complaints = complaints_of(row.report);
    if (complaints.empty()) continue;
    out += page_part(fmt::format("{} clients", row.concurrency)) + page_complaints(complaints);
  }
  out += "<div class=\"plots\">\n" + plots(rows) + "</div>\n";
  PlotTable table{head(rows.front().concurrency), {}};
  for (const LoadRow& row : rows) table.rows.push_back(cells(row, rows.front()));
  constexpr const char* kTitle = "Rows (times in milliseconds)";
  return out + page_part(kTitle) + "<div class=\"panel\">" + html_table(table, kTitle) + "</div>\n" +
         page_end(facts);
}

}  // namespace quire::bench
