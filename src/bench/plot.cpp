#include "bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace quire::bench {
namespace {

// Units of the drawing: at 420 pixels of width about one pixel each.
constexpr double kWidth = 440;
constexpr double kHeight = 250;
constexpr double kLeft = 48;
constexpr double kRight = 12;
constexpr double kTop = 22;
constexpr double kBottom = 38;

/// The positions of an axis's labels, which also limit its range.
std::vector<double> linear_ticks(double high) {
  constexpr int kAbout = 5;
  if (!(high > 0)) high = 1;
  const double raw = high / kAbout;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= raw) {
      step = nice * power;
      break;
    }
  }
  std::vector<double> ticks;
  const auto count = static_cast<int>(std::ceil(high / step - 1e-9));
  for (int i = 0; i <= std::max(1, count); ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  const bool is_wide = high / low > 1000;
  std::vector<double> ticks;
  for (auto decade = static_cast<int>(std::floor(std::log10(low)));; ++decade) {
    for (const double part : {1.0, 2.0, 5.0}) {
      if (is_wide && part > 1) continue;
      const double tick = part * std::pow(10, decade);
      if (tick <= low * (1 + 1e-9)) ticks.clear();  // the last one below is where the axis begins
      ticks.push_back(tick);
      if (tick >= high * (1 - 1e-9) && ticks.size() > 1) return ticks;
    }
  }
}

std::string tick_text(double value) {
  if (value >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

/// Maps the values of an axis to positions in the drawing.
class Scale {
 public:
  Scale(const PlotAxis& axis, double low, double high, double from, double to)
      : axis_(axis), from_(from), to_(to) {
    ticks_ =
        axis.is_log ? log_ticks(std::max(low, axis.least), std::max(high, axis.least)) : linear_ticks(high);
  }
  const std::vector<double>& ticks() const { return ticks_; }
  double operator()(double value) const {
    const double share =
        (place(value) - place(ticks_.front())) / (place(ticks_.back()) - place(ticks_.front()));
    return from_ + share * (to_ - from_);
  }

 private:
  double place(double value) const { return axis_.is_log ? std::log(std::max(value, axis_.least)) : value; }

  const PlotAxis& axis_;
  double from_;
  double to_;
  std::vector<double> ticks_;
};

std::string grid(const Scale& x, const Scale& y, const PlotAxis& x_axis, const PlotAxis& y_axis) {
  std::string out;
  for (const double tick : y.ticks()) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, y(tick), kWidth - kRight, kLeft - 5, y(tick) + 4, tick_text(tick));
  }
  for (const double tick : x.ticks()) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {}V{}\"/><text x=\"{:.1f}\" y=\"{}\" "
        "text-anchor=\"middle\">{}</text>",
        x(tick), kTop, kHeight - kBottom, x(tick), kHeight - kBottom + 15, tick_text(tick));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kWidth - kRight, kHeight - 6,
                     html_text(x_axis.label));
  out += fmt::format("<text x=\"4\" y=\"{}\">{}</text>", kTop - 11, html_text(y_axis.label));
  return out;
}

/// One dot for all points at the same place, so that a page with a million points stays small.
std::string dots(const PlotSeries& series, const Scale& x, const Scale& y) {
  std::set<std::pair<int, int>> places;
  for (const auto& [at, value] : series.points) {
    places.emplace(static_cast<int>(std::lround(x(at))), static_cast<int>(std::lround(y(value))));
  }
  std::string path;
  for (const auto& [at, value] : places) path += fmt::format("M{} {}h0", at, value);
  return path;
}

std::string line(const PlotSeries& series, const Scale& x, const Scale& y) {
  std::string path;
  for (const auto& [at, value] : series.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(at), y(value));
  }
  return path;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string plot_figure(std::string_view title, const PlotAxis& x_axis, const PlotAxis& y_axis,
                        std::span<const PlotSeries> series, PlotMark mark) {
  double low_x = std::numeric_limits<double>::infinity();
  double high_x = 0;
  double low_y = low_x;
  double high_y = 0;
  for (const PlotSeries& each : series) {
    for (const auto& [x, y] : each.points) {
      low_x = std::min(low_x, x);
      high_x = std::max(high_x, x);
      low_y = std::min(low_y, y);
      high_y = std::max(high_y, y);
    }
  }
  std::string out = fmt::format("<figure><figcaption><b>{}</b>", html_text(title));
  if (std::isinf(low_x)) return out + "</figcaption><p class=\"quiet\">no data</p></figure>\n";
  for (size_t i = 0; i < series.size() && series.size() > 1; ++i) {
    out += fmt::format(" <span class=\"key s{}\"><i></i>{}</span>", i, html_text(series[i].name));
  }
  const Scale x(x_axis, low_x, high_x, kLeft, kWidth - kRight);
  const Scale y(y_axis, low_y, high_y, kHeight - kBottom, kTop);
  out += fmt::format("</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth,
                     kHeight, html_text(title));
  out += grid(x, y, x_axis, y_axis);
  for (size_t i = 0; i < series.size(); ++i) {
    const bool is_dots = mark == PlotMark::kDots;
    out += fmt::format("<path class=\"{} s{}\" d=\"{}\"/>", is_dots ? "dots" : "line", i,
                       is_dots ? dots(series[i], x, y) : line(series[i], x, y));
  }
  return out + "</svg></figure>\n";
}

}  // namespace quire::bench
