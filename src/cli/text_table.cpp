#include "cli/text_table.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "cli/terminal.h"

namespace quire::cli {

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\n\r") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string TextTable::text(size_t left) const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < head.size(); ++column) {
    size_t width = head[column].size();
    for (const std::vector<std::string>& row : rows) width = std::max(width, row[column].size());
    widths.push_back(width);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (size_t column = 0; column < cells.size(); ++column) {
      out += column == 0 ? "" : "  ";
      out += column < left ? fmt::format("{:<{}}", cells[column], widths[column])
                           : fmt::format("{:>{}}", cells[column], widths[column]);
    }
    return out;
  };
  std::string out = paint(stdout, line(head), fmt::emphasis::bold) + "\n";
  for (const std::vector<std::string>& row : rows) out += line(row) + "\n";
  return out;
}

std::string TextTable::csv() const {
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    for (size_t column = 0; column < cells.size(); ++column) {
      out += (column == 0 ? "" : ",") + csv_cell(cells[column]);
    }
    out += "\n";
  };
  add(head);
  for (const std::vector<std::string>& row : rows) add(row);
  return out;
}

}  // namespace quire::cli
