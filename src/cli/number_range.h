#pragma once

#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace quire::cli {

/// Requires a number in [least, most]; unlike CLI::Range it refuses nan.
CLI::Validator number_range(double least, double most);

/// 1e-06 as "0.000001", 1e+06 as "1000000": up to nine digits after the point.
std::string decimal(double number);

/// Requires an unsigned 64-bit number; CLI11 itself silently converts a negative or a larger number.
CLI::Validator whole_number();

}  // namespace quire::cli
