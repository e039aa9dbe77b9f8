#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <boost/json/array.hpp>

#include "cli/load_page.h"
#include "cli/load_report.h"
#include "cli/server_footprint.h"

// The same load by more and more clients, a row each: what serving many at once brings.
namespace quire::cli {

struct LoadRow {
  uint32_t concurrency = 1;  // clients that take turns
  LoadReport report;
  ServerFootprint server;

  double tokens_per_second() const { return report.per_second(report.output_tokens); }
};

/// Output tokens a second as a multiple of those of `first`; 0 if that had none.
double ratio(const LoadRow& row, const LoadRow& first);

/// The head of the table, whose ratios are to a row of so many clients; and one row of it. What a server does
/// not say is "-".
std::string load_table_head(uint32_t first);
std::string load_table_line(const LoadRow& row, const LoadRow& first);

/// One object a row: that of its report, "concurrency", "ratio", and null for what the server does not say.
boost::json::array to_json(std::span<const LoadRow> rows);

/// The rows as a page for a browser, plots over the number of clients and the table; see load_page. REQUIRES:
/// a row.
std::string load_table_page(const LoadFacts& facts, std::span<const LoadRow> rows);

}  // namespace quire::cli
