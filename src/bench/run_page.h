#pragma once

#include <string>
#include <vector>

#include "bench/run_data.h"

namespace quire::bench {

/// A run as a page for a browser: its figures, plots, tables and settings; see page_frame.h. `other`: a run
/// whose figures and distributions are laid over it, or nullptr.
std::string run_page(const RunData& run, const RunData* other = nullptr);

/// Two runs as a page: their figures beside each other, and their distributions in one plot each.
std::string comparison_page(const RunData& a, const RunData& b);

/// The plots of one run, and of what another has in common with it.
std::string run_plots(const RunData& run, const RunData* other);
/// The plots of what all runs have.
std::string common_plots(const std::vector<const RunData*>& runs);

}  // namespace quire::bench
