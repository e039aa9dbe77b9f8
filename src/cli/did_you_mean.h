#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quire::cli {

/// "did you mean /set, /save or /stats?": the names that begin with `name`, or else the one that differs from
/// it by one or two letters. Empty if there are none. Names of fewer than three letters are never suggested.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> names);

}  // namespace quire::cli
