#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Plots for a self-contained page: an SVG element within a figure, drawn with the page's colours (the classes
// s0, s1, s2 and the variables --quiet, --line).
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

/// At most three series. If no series has a point, the figure says that there is nothing to draw.
std::string plot_figure(std::string_view title, const PlotAxis& x, const PlotAxis& y,
                        std::span<const PlotSeries> series, PlotMark mark);

/// Text within HTML, or within an attribute in double quotes.
std::string html_text(std::string_view text);

}  // namespace quire::bench
