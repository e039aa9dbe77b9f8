#include "bench/page_frame.h"

#include <fmt/format.h>

#include "bench/plot.h"

namespace quire::bench {
namespace {

constexpr std::string_view kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>quire )html";

constexpr std::string_view kStyle = R"html(</title>
<style>
:root {
  color-scheme: light dark;
  --page: #f6f5f1; --panel: #ffffff; --ink: #1d2327; --quiet: #5c666d; --line: #e4e2db; --alarm: #b3261e;
  --accent: #1f5f8b;
  --s0: #0072b2; --s1: #c05a00; --s2: #00805c; --s3: #a23b86; --s4: #6a51a3; --s5: #7d6a00; --s6: #4a5560;
  --s7: #c2185b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181b; --panel: #1c2226; --ink: #e8e6e1; --quiet: #a2abb1; --line: #30383e; --alarm: #ff8a80;
    --accent: #7cc0ee;
    --s0: #56b4e9; --s1: #f0a04b; --s2: #1fb58a; --s3: #e39ac4; --s4: #a994e0; --s5: #c9ba55; --s6: #c3cad0;
    --s7: #ff7aa8;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 20px 16px; max-width: 1200px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { font-size: 22px; line-height: 1.25; margin: 0 0 2px; font-weight: 650; }
h2 { font-size: 16px; margin: 20px 0 6px; font-weight: 650; }
p { margin: 0 0 6px; }
.quiet { color: var(--quiet); }
.alarm { color: var(--alarm); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 14px 0; }
.figures div, figure, .panel { background: var(--panel); border-radius: 8px; padding: 10px 14px; }
.figures div { overflow-wrap: anywhere; min-width: 0; }
.figures b { display: block; font-size: 20px; line-height: 1.3; }
.scroll { overflow-x: auto; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
table { border-collapse: collapse; width: 100%; }
th { font-weight: 600; }
tr > th:first-child { font-weight: 400; }
td, th { padding: 3px 0 3px 10px; text-align: right; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
tr + tr > * { border-top: 1px solid var(--line); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 3px 14px; margin: 0; }
dt { color: var(--quiet); overflow-wrap: anywhere; max-width: 40vw; }
dd { margin: 0; overflow-wrap: anywhere; }
details { margin-top: 4px; font-size: 13px; }
summary { cursor: pointer; color: var(--accent); width: fit-content; border-radius: 4px; }
.panel + .plots { margin-top: 12px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 12px; }
.small { grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
.small figcaption b { display: block; }
figure { margin: 0; min-width: 0; position: relative; }
figcaption b { margin-right: 8px; }
.key { margin-right: 8px; overflow-wrap: anywhere; }
.key i { display: inline-block; width: 14px; height: 4px; border-radius: 2px; margin-right: 5px;
  vertical-align: middle; background: currentColor; }
.key.s0 i { color: var(--s0); } .key.s1 i { color: var(--s1); } .key.s2 i { color: var(--s2); } .key.s3 i { color: var(--s3); }
.key.s4 i { color: var(--s4); } .key.s5 i { color: var(--s5); } .key.s6 i { color: var(--s6); } .key.s7 i { color: var(--s7); }
svg { display: block; width: 100%; height: auto; margin-top: 4px; overflow: visible; }
svg text { fill: var(--quiet); font-size: 11px; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dots { fill: none; stroke-width: 4; stroke-linecap: round; stroke-opacity: 0.65; }
.marks { fill: none; stroke-width: 6; stroke-linecap: round; }
path.s0 { stroke: var(--s0); } path.s1 { stroke: var(--s1); } path.s2 { stroke: var(--s2); } path.s3 { stroke: var(--s3); }
path.s4 { stroke: var(--s4); } path.s5 { stroke: var(--s5); } path.s6 { stroke: var(--s6); } path.s7 { stroke: var(--s7); }
.bar.s0 { fill: var(--s0); } .bar.s1 { fill: var(--s1); } .bar.s2 { fill: var(--s2); } .bar.s3 { fill: var(--s3); }
.bar.s4 { fill: var(--s4); } .bar.s5 { fill: var(--s5); } .bar.s6 { fill: var(--s6); } .bar.s7 { fill: var(--s7); }
.line.s1 { stroke-dasharray: 7 3; } .line.s2 { stroke-dasharray: 2 3; } .line.s3 { stroke-dasharray: 10 3 2 3; }
.line.s4 { stroke-dasharray: 4 2; } .line.s5 { stroke-dasharray: 12 4; } .line.s6 { stroke-dasharray: 1 2; }
.line.s7 { stroke-dasharray: 6 2 1 2 1 2; }
</style>
</head>
<body>
<main>
)html";

std::string begin_of(PageOf of) {
  return fmt::format("{}{}: ", kHead, of == PageOf::kRuns ? "report" : "fit");
}

}  // namespace

FileKind page_kind() {
  static const std::string begins = begin_of(PageOf::kRuns);
  return {"page of quire bench serve or simulate", begins};
}
FileKind fit_page_kind() {
  static const std::string begins = begin_of(PageOf::kFit);
  return {"page of quire calibrate", begins};
}

std::string page_head(std::string_view title, PageOf of) {
  return fmt::format("{}{}{}<h1>{}</h1>\n", begin_of(of), html_text(title), kStyle, html_text(title));
}

std::string page_part(std::string_view name) { return fmt::format("<h2>{}</h2>\n", html_text(name)); }

std::string page_complaints(const std::vector<std::string>& complaints) {
  std::string out;
  for (const std::string& each : complaints)
    out += fmt::format("<p class=\"alarm\">{}</p>\n", html_text(each));
  return out;
}

std::string page_figures(const PageFacts& figures) {
  std::string out = "<div class=\"figures\">\n";
  for (const auto& [value, name] : figures) {
    out += fmt::format("<div><b>{}</b>{}</div>\n", html_text(value), html_text(name));
  }
  return out + "</div>\n";
}

std::string page_end(const PageFacts& settings) {
  std::string out = page_part("Settings") + "<div class=\"panel\"><dl>\n";
  for (const auto& [name, value] : settings) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_text(name), html_text(value));
  }
  return out + "</dl></div>\n</main>\n</body>\n</html>\n";
}

}  // namespace quire::bench
