#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Plots for a page that needs no other file: an SVG element within a figure, drawn with the page's colours
// (the classes s0, s1, s2 and the variables --quiet, --line).
namespace quire::cli {

struct PlotAxis {
  std::string label;
  bool is_log = false;
  /// The least that is shown of a logarithmic axis: what lies below is drawn there.
  double least = 0.01;
};

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending, unless they are dots
};

enum class PlotMark { kDots, kLine };

/// At most three series. Says that there is nothing to draw if no series has a point.
std::string plot_figure(std::string_view title, const PlotAxis& x, const PlotAxis& y,
                        std::span<const PlotSeries> series, PlotMark mark);

/// Text within HTML, or within an attribute in double quotes.
std::string html_text(std::string_view text);

}  // namespace quire::cli
