#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_kind.h"
#include "cli/load_report.h"

namespace quire::cli {

/// What stands above the figures: a line each, in this order.
using LoadFacts = std::vector<std::pair<std::string, std::string>>;

/// A load as a page for a browser: what was asked, the figures, and plots; one file that needs no other and
/// has no script. Nothing of `facts` or of what the server said is taken for HTML.
std::string load_page(const LoadFacts& facts, const LoadReport& report, std::span<const LoadSample> samples);

/// What tells such pages, load_table_page's too, from other files.
FileKind load_page_kind();

/// The parts that such pages have in common: all up to the body with the page's title; what went wrong,
/// nothing if nothing did; `facts` as a table and the end of the page.
std::string load_page_head(std::string_view title);
std::string load_page_failures(const LoadReport& report);
std::string load_page_facts(const LoadFacts& facts);

}  // namespace quire::cli
