#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace quire::cli {

/// A flag's number must lie in [least, most]; unlike CLI::Range it refuses what is no number (nan).
CLI::Validator number_range(double least, double most);

}  // namespace quire::cli
