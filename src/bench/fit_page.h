#pragma once

#include <span>
#include <string>

#include "backend/step_work.h"
#include "bench/page_frame.h"
#include "sim/calibration.h"

namespace quire::bench {

/// A page (page_frame.h) about a fit: the times of steps, measured and fitted, against what they depend on;
/// how far they deviate, by kind and by phase; the costs; and the ranges in which they hold. `records`: what
/// it was fitted to, in the order of Calibration::fitted. `settings`: what else a reader should know. Pure.
std::string fit_page(const sim::Calibration& fit, std::span<const backend::StepRecord> records,
                     const PageFacts& settings);

}  // namespace quire::bench
