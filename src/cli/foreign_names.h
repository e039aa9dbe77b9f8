#pragma once

#include <functional>
#include <string_view>

namespace quire::cli {

/// A name used by vLLM, llama.cpp, Ollama or SGLang, and the equivalent in quire.
struct ForeignName {
  std::string_view names;  // separated by spaces; flags with their dashes
  std::string_view
      ours;  // the flag or argument that the command must have for the hint to apply; empty: none
  std::string_view hint;  // "{}" stands for the command, such as "quire serve"
};

/// Nullptr if no program has a flag of that name, or if `has` says that the command lacks the flag of the
/// hint.
const ForeignName* find_foreign_flag(std::string_view name, const std::function<bool(std::string_view)>& has);

/// Nullptr if no program has a command of that name.
const ForeignName* find_foreign_command(std::string_view name);

}  // namespace quire::cli
