#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <boost/json/array.hpp>

#include "bench/load_report.h"
#include "bench/page_frame.h"
#include "bench/server_footprint.h"

// The same load with increasing numbers of clients, one row each: throughput and latency by concurrency.
namespace quire::bench {

struct LoadRow {
  uint32_t concurrency = 1;  // number of clients, each with one request at a time
  LoadReport report;
  ServerFootprint server;

  double tokens_per_second() const { return report.per_second(report.output_tokens); }
};

/// Output tokens per second as a multiple of those of `first`; 0 if `first` had none.
double ratio(const LoadRow& row, const LoadRow& first);

/// The head of the table, whose ratios are relative to the row with `first` clients; and one row of it.
/// Values that a server does not report are "-".
std::string load_table_head(uint32_t first);
std::string load_table_line(const LoadRow& row, const LoadRow& first);

/// One object per row: that of its report, "concurrency", "ratio", and null for values that the server does
/// not report.
boost::json::array to_json(std::span<const LoadRow> rows);

/// The rows as a page for a browser, plots over the number of clients and the table; see page_frame.h.
/// REQUIRES: at least one row.
std::string load_table_page(const PageFacts& facts, std::span<const LoadRow> rows);

}  // namespace quire::bench
