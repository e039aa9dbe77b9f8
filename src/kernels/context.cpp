#include "kernels/context.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/table.h"

namespace quire::kernels {

std::string_view isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kReference:
      return "reference";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx2Vnni:
      return "avx2-vnni";
    case IsaLevel::kAvx512:
      return "avx512";
    case IsaLevel::kAvx512Vnni:
      return "avx512-vnni";
    case IsaLevel::kAvx512Bf16:
      return "avx512-bf16";
    case IsaLevel::kAmx:
      return "amx";
  }
  return "?";
}

std::optional<IsaLevel> parse_isa(std::string_view name) {
  for (const IsaLevel level : {IsaLevel::kReference, IsaLevel::kAvx2, IsaLevel::kAvx2Vnni, IsaLevel::kAvx512,
                               IsaLevel::kAvx512Vnni, IsaLevel::kAvx512Bf16, IsaLevel::kAmx}) {
    if (name == isa_name(level)) return level;
  }
  return std::nullopt;
}

const std::vector<IsaLevel>& available_isa_levels() {
  static const std::vector<IsaLevel> kLevels = [] {
    std::vector<IsaLevel> found = cpu::native_levels();
    found.insert(found.begin(), IsaLevel::kReference);
    return found;
  }();
  return kLevels;
}

IsaLevel pick_isa(std::string_view name, std::string_view flag) {
  if (name == "auto") return best_isa_level();
  const std::optional<IsaLevel> level = parse_isa(name);
  const std::vector<IsaLevel>& there = available_isa_levels();
  if (level && std::find(there.begin(), there.end(), *level) != there.end()) return *level;
  std::string names;
  for (const IsaLevel each : there) names += fmt::format("{}{}", names.empty() ? "" : ", ", isa_name(each));
  throw Error(fmt::format("{}: this machine has no '{}' (it has {})", flag, name, names));
}

}  // namespace quire::kernels
