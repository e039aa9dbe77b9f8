#pragma once

#include <string>
#include <vector>

namespace quire::cli {

/// A cell of a CSV file as RFC 4180 has it: in quotes if it must be.
std::string csv_cell(const std::string& cell);

/// Rows of cells below a head; all have as many.
struct TextTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;

  /// In columns as wide as they must be: the first `left` of them begin at their left edge, the others end at
  /// their right.
  std::string text(size_t left) const;
  /// As RFC 4180 has it, with ends of lines as Unix has them.
  std::string csv() const;
};

}  // namespace quire::cli
