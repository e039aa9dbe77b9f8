#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_kind.h"
#include "bench/load_report.h"

namespace quire::bench {

/// The lines above the figures, in this order.
using LoadFacts = std::vector<std::pair<std::string, std::string>>;

/// A load as a page for a browser: the settings, the figures, and plots; one self-contained file without
/// scripts. `facts` and text from the server are never interpreted as HTML.
std::string load_page(const LoadFacts& facts, const LoadReport& report, std::span<const LoadSample> samples);

/// The file kind of such pages, including those of load_table_page.
FileKind load_page_kind();

/// The common parts of such pages: everything up to the body, with the page's title; the errors, empty if
/// there are none; `facts` as a table and the end of the page.
std::string load_page_head(std::string_view title);
std::string load_page_failures(const LoadReport& report);
std::string load_page_facts(const LoadFacts& facts);

}  // namespace quire::bench
