#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/run_data.h"

namespace quire::bench {

/// A figure of two runs; absent where a run does not have it.
struct ComparedFigure {
  std::string name;
  std::string unit;
  std::optional<double> a;
  std::optional<double> b;

  /// b / a.
  std::optional<double> ratio() const;
};

/// A setting that differs; absent where a run does not have it.
struct ComparedSetting {
  std::string name;
  std::optional<std::string> a;
  std::optional<std::string> b;
};

/// Times of the requests that both runs have finished.
struct PairedTime {
  std::string name;     // "TTFT"
  Nanos median = 0;     // of the differences b - a
  uint64_t slower = 0;  // requests for which it is positive
  uint64_t pairs = 0;
};

struct Comparison {
  std::string a;  // the names of the runs
  std::string b;
  std::vector<ComparedFigure> figures;
  std::vector<ComparedSetting> settings;  // those that differ
  /// Requests with the same number and the same prompt length in both, that both finished; and those with the
  /// same number, of which some may not be.
  uint64_t paired = 0;
  uint64_t common = 0;
  std::vector<PairedTime> times;             // empty if none are paired
  std::vector<std::string> complaints_of_a;  // RunData::complaints
  std::vector<std::string> complaints_of_b;
};
Comparison compare(const RunData& a, const RunData& b);

/// The rows of the table of figures: name with unit, a, b, b / a.
std::vector<std::vector<std::string>> figure_rows(const Comparison& of);
/// What is said of the requests that are paired, in one sentence for each time, or why none are.
std::vector<std::string> pair_texts(const Comparison& of);

/// As parts of a page.
std::string comparison_html(const Comparison& of);

}  // namespace quire::bench
