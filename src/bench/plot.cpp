#include "bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/amounts.h"

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

std::string horizontal_grid(const Scale& y, const PlotAxis& y_axis) {
  std::string out;
  for (const double tick : y.ticks()) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, y(tick), kWidth - kRight, kLeft - 5, y(tick) + 4, tick_text(tick));
  }
  return out + fmt::format("<text x=\"4\" y=\"{}\">{}</text>", kTop - 11, html_text(y_axis.label));
}

std::string grid(const Scale& x, const Scale& y, const PlotAxis& x_axis, const PlotAxis& y_axis) {
  std::string out = horizontal_grid(y, y_axis);
  for (const double tick : x.ticks()) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {}V{}\"/><text x=\"{:.1f}\" y=\"{}\" "
        "text-anchor=\"middle\">{}</text>",
        x(tick), kTop, kHeight - kBottom, x(tick), kHeight - kBottom + 15, tick_text(tick));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kWidth - kRight, kHeight - 6,
                     html_text(x_axis.label));
  return out;
}

/// One dot for all points at nearly the same place, so that a page with a million points stays small.
std::string dots(const PlotSeries& series, const Scale& x, const Scale& y) {
  std::set<std::pair<int, int>> places;
  for (const auto& [at, value] : series.points) {
    places.emplace(2 * static_cast<int>(std::lround(x(at) / 2)),
                   2 * static_cast<int>(std::lround(y(value) / 2)));
  }
  std::string path;
  for (const auto& [at, value] : places) path += fmt::format("M{} {}h0", at, value);
  return path;
}

/// A few points are marked, so that one alone is seen too.
std::string marks(const PlotSeries& series, const Scale& x, const Scale& y) {
  constexpr size_t kFew = 24;
  if (series.points.size() > kFew) return {};
  std::string path;
  for (const auto& [at, value] : series.points) path += fmt::format("M{:.1f} {:.1f}h0", x(at), y(value));
  return path;
}

std::string line(const PlotSeries& series, const Scale& x, const Scale& y) {
  std::string path;
  for (const auto& [at, value] : series.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(at), y(value));
  }
  return path;
}

std::string key_of(std::span<const PlotSeries> series) {
  std::string out;
  for (size_t i = 0; i < std::min(kMostSeries, series.size()) && series.size() > 1; ++i) {
    out += fmt::format(" <span class=\"key s{}\"><i></i>{}</span>", i, html_text(series[i].name));
  }
  if (series.size() > kMostSeries) {
    out += fmt::format(" <span class=\"quiet\">and {} more in the table</span>", series.size() - kMostSeries);
  }
  return out;
}

struct Range {
  double low_x = std::numeric_limits<double>::infinity();
  double high_x = 0;
  double low_y = low_x;
  double high_y = 0;

  explicit Range(std::span<const PlotSeries> series) {
    for (const PlotSeries& each : series) {
      for (const auto& [x, y] : each.points) {
        low_x = std::min(low_x, x);
        high_x = std::max(high_x, x);
        low_y = std::min(low_y, y);
        high_y = std::max(high_y, y);
      }
    }
  }
  bool is_empty() const { return std::isinf(low_x); }
};

constexpr size_t kMostRows = 12;

/// Of each part of the x axis the median of each series.
PlotTable medians(const PlotAxis& x, std::span<const PlotSeries> series, const Range& range) {
  PlotTable out{{x.label}, {}};
  const double width = std::max(range.high_x - range.low_x, 1e-9) / kMostRows;
  std::vector<std::vector<std::vector<double>>> values(kMostRows);
  for (auto& part : values) part.resize(series.size());
  for (size_t i = 0; i < series.size(); ++i) {
    out.head.push_back("median " + series[i].name);
    for (const auto& [at, value] : series[i].points) {
      const auto part = static_cast<size_t>(std::max(0.0, (at - range.low_x) / width));
      values[std::min(part, kMostRows - 1)][i].push_back(value);
    }
  }
  for (size_t part = 0; part < kMostRows; ++part) {
    const double from = range.low_x + width * static_cast<double>(part);
    std::vector<std::string> row = {fmt::format("{} to {}", number_text(from), number_text(from + width))};
    for (std::vector<double>& of : values[part]) {
      const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
      if (!of.empty()) std::nth_element(of.begin(), middle, of.end());
      row.push_back(of.empty() ? "-" : number_text(*middle));
    }
    out.rows.push_back(std::move(row));
  }
  return out;
}

/// Some of the places where a series has a point, and what each has there.
PlotTable some_points(const PlotAxis& x, std::span<const PlotSeries> series) {
  std::map<double, std::vector<std::string>> rows;
  PlotTable out{{x.label}, {}};
  for (size_t i = 0; i < series.size(); ++i) {
    out.head.push_back(series[i].name);
    for (const auto& [at, value] : series[i].points) {
      std::vector<std::string>& row = rows[at];
      row.resize(series.size(), "-");
      row[i] = number_text(value);
    }
  }
  const size_t count = std::min(kMostRows, rows.size());
  size_t index = 0;
  for (auto& [at, cells] : rows) {
    // The first, the last, and others at equal distances between them.
    const size_t wanted = count > 1 ? out.rows.size() * (rows.size() - 1) / (count - 1) : 0;
    if (index++ != wanted) continue;
    std::vector<std::string>& row = out.rows.emplace_back();
    row.push_back(number_text(at));
    row.insert(row.end(), cells.begin(), cells.end());
  }
  return out;
}

std::string numbers_of(const PlotTable& table, std::string_view title) {
  return fmt::format("<details><summary>Numbers<span class=\"unseen\"> of: {}</span></summary>{}</details>",
                     html_text(title), html_table(table, title));
}

std::string svg_head(std::string_view title) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                     html_text(title));
}

}  // namespace

std::string number_text(double value) {
  const double size = std::abs(value);
  if (size >= 10'000 && value > 0 && size < 1e15)
    return with_commas(static_cast<uint64_t>(std::llround(value)));
  if (size >= 1000 || value == std::floor(value)) return fmt::format("{:.0f}", value);
  if (size >= 100) return fmt::format("{:.1f}", value);
  if (size >= 1) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}

std::string html_table(const PlotTable& table, std::string_view name) {
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n<tr>",
                  html_text(name));
  for (const std::string& cell : table.head) out += fmt::format("<th scope=\"col\">{}</th>", html_text(cell));
  out += "</tr>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += i == 0 ? fmt::format("<th scope=\"row\">{}</th>", html_text(row[i]))
                    : fmt::format("<td>{}</td>", html_text(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

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
                        std::span<const PlotSeries> series, PlotMark mark, PlotTable numbers) {
  const Range range(series);
  std::string out = fmt::format("<figure><figcaption><b>{}</b>", html_text(title));
  if (range.is_empty()) return out + "</figcaption><p class=\"quiet\">no data</p></figure>\n";
  const bool is_dots = mark == PlotMark::kDots;
  const Scale x(x_axis, range.low_x, range.high_x, kLeft, kWidth - kRight);
  const Scale y(y_axis, range.low_y, range.high_y, kHeight - kBottom, kTop);
  out += key_of(series) + "</figcaption>" + svg_head(title) + grid(x, y, x_axis, y_axis);
  for (size_t i = 0; i < std::min(kMostSeries, series.size()); ++i) {
    out += fmt::format("<path class=\"{} s{}\" d=\"{}\"/>", is_dots ? "dots" : "line", i,
                       is_dots ? dots(series[i], x, y) : line(series[i], x, y));
    const std::string marked = is_dots ? std::string() : marks(series[i], x, y);
    if (!marked.empty()) out += fmt::format("<path class=\"marks s{}\" d=\"{}\"/>", i, marked);
  }
  if (numbers.head.empty()) numbers = is_dots ? medians(x_axis, series, range) : some_points(x_axis, series);
  return out + "</svg>" + numbers_of(numbers, title) + "</figure>\n";
}

std::string bar_figure(std::string_view title, const std::vector<std::string>& groups, const PlotAxis& y_axis,
                       std::span<const PlotSeries> series) {
  const Range range(series);
  std::string out = fmt::format("<figure><figcaption><b>{}</b>", html_text(title));
  if (range.is_empty()) return out + "</figcaption><p class=\"quiet\">no data</p></figure>\n";
  const Scale y(y_axis, range.low_y, range.high_y, kHeight - kBottom, kTop);
  out += key_of(series) + "</figcaption>" + svg_head(title) + horizontal_grid(y, y_axis);
  const double bottom = y(y.ticks().front());
  const double space = (kWidth - kRight - kLeft) / static_cast<double>(groups.size());
  const size_t bars = std::min(kMostSeries, series.size());
  const double wide = 0.8 * space / static_cast<double>(bars);
  PlotTable numbers{{""}, {}};
  for (const std::string& group : groups) numbers.rows.push_back({group});
  // As many names as fit; the table has all.
  constexpr double kLetter = 6.2;
  size_t longest = 1;
  for (const std::string& group : groups) longest = std::max(longest, group.size());
  const auto every = static_cast<size_t>(std::ceil((static_cast<double>(longest) + 1) * kLetter / space));
  for (size_t i = 0; i < groups.size(); i += every) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                       kLeft + space * (static_cast<double>(i) + 0.5), kHeight - kBottom + 15,
                       html_text(groups[i]));
  }
  for (size_t i = 0; i < series.size(); ++i) {
    numbers.head.push_back(series[i].name);
    for (std::vector<std::string>& row : numbers.rows) row.emplace_back("-");
    std::string path;
    for (const auto& [at, value] : series[i].points) {
      const double left = kLeft + space * (at + 0.1) + wide * static_cast<double>(i);
      path += fmt::format("M{:.1f} {:.1f}V{:.1f}h{:.1f}V{:.1f}z", left, bottom, y(value), wide, bottom);
      numbers.rows.at(static_cast<size_t>(at)).back() = number_text(value);
    }
    if (i < bars) out += fmt::format("<path class=\"bar s{}\" d=\"{}\"/>", i, path);
  }
  return out + "</svg>" + numbers_of(numbers, title) + "</figure>\n";
}

}  // namespace quire::bench
