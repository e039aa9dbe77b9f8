#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_kind.h"

// What the pages of bench serve, simulate and calibrate have in common: one self-contained file without
// scripts, in light and dark, readable at the width of a telephone and without a mouse. No text is
// interpreted as HTML.
namespace quire::bench {

/// Names and their values, in this order.
using PageFacts = std::vector<std::pair<std::string, std::string>>;

/// Runs, or the fit of a cost model: one does not overwrite the other.
enum class PageOf : uint8_t { kRuns, kFit };
/// The file kinds of such pages.
FileKind page_kind();
FileKind fit_page_kind();

/// All up to and with the heading.
std::string page_head(std::string_view title, PageOf of = PageOf::kRuns);
/// A heading of a part.
std::string page_part(std::string_view name);
/// Each complaint as a paragraph.
std::string page_complaints(const std::vector<std::string>& complaints);
/// Large numbers, each with its name below it: (value, name).
std::string page_figures(const PageFacts& figures);
/// The settings, and the end of the page.
std::string page_end(const PageFacts& settings);

}  // namespace quire::bench
