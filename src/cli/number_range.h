#pragma once

#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace quire::cli {

/// A flag's number must lie in [least, most]; unlike CLI::Range it refuses what is no number (nan).
CLI::Validator number_range(double least, double most);

/// 1e-06 as "0.000001", 1e+06 as "1000000": up to nine digits behind the point.
std::string decimal(double number);

/// A flag's number must be one of 64 bits without a sign; CLI11 by itself turns a negative one, or a larger
/// one, into another.
CLI::Validator whole_number();

}  // namespace quire::cli
