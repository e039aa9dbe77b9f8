#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Plots for a self-contained page: an SVG element within a figure, drawn with the page's colours (the classes
// s0 to s7 and the variables --quiet, --line), and below it the numbers as a table that opens with a key.
namespace quire::bench {

struct PlotAxis {
  std::string label;
  bool is_log = false;
  /// The lowest value of a logarithmic axis; lower values are drawn there.
  double least = 0.01;
};

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending, unless they are dots
};

enum class PlotMark { kDots, kLine };

/// Rows of cells below a head; all have as many.
struct PlotTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

/// More series are not drawn, which the figure says.
inline constexpr size_t kMostSeries = 8;

/// If no series has a point, the figure says that there is nothing to draw. `numbers`: the table below the
/// plot; without a head it has some points of each series: of dots the medians of parts of the x axis.
std::string plot_figure(std::string_view title, const PlotAxis& x, const PlotAxis& y,
                        std::span<const PlotSeries> series, PlotMark mark, PlotTable numbers = {});

/// A group of bars for each of `groups`, in it one bar for each series. x of a point is the number of its
/// group, from 0.
std::string bar_figure(std::string_view title, const std::vector<std::string>& groups, const PlotAxis& y,
                       std::span<const PlotSeries> series);

/// With about four digits: "0.0123", "12.3", "12,345".
std::string number_text(double value);

/// A table that scrolls by itself where it is too wide, also with the keyboard. `name` is for those who do
/// not see it.
std::string html_table(const PlotTable& table, std::string_view name);

/// Text within HTML, or within an attribute in double quotes.
std::string html_text(std::string_view text);

}  // namespace quire::bench
