#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/load_report.h"

namespace quire::cli {

/// What stands above the figures: a line each, in this order.
using LoadFacts = std::vector<std::pair<std::string, std::string>>;

/// A load as a page for a browser: what was asked, the figures, and plots; one file that needs no other and
/// has no script. Nothing of `facts` or of what the server said is taken for HTML.
std::string load_page(const LoadFacts& facts, const LoadReport& report, std::span<const LoadSample> samples);

}  // namespace quire::cli
