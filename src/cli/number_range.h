#pragma once

#include <string>

namespace quire::cli {

/// 1e-06 as "0.000001", 1e+06 as "1000000": up to nine digits after the point.
std::string decimal(double number);

/// What is wrong with a text that should be a finite number in [least, most]; empty if it is one.
std::string number_fault(const std::string& text, double least, double most);

/// The range as CLI11 describes its own, which help_formatter.h reads.
std::string number_range_text(double least, double most);

/// What is wrong with a text that should be an unsigned 64-bit number; empty if it is one. CLI11 itself
/// silently converts a negative or a larger number.
std::string whole_number_fault(const std::string& text);

}  // namespace quire::cli
