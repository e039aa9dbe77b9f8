#pragma once

#include <functional>
#include <string_view>

namespace quire::cli {

/// A name that vLLM, llama.cpp, Ollama or SGLang has for something, and what does that here.
struct ForeignName {
  std::string_view names;  // separated by spaces; of flags, with their dashes
  std::string_view ours;   // the flag, or the argument, without which the hint means nothing; empty: none
  std::string_view hint;   // "{}" stands for the command, such as "quire serve"
};

/// Nullptr if no program has a flag of that name, or `has` says that the command has not what it is about.
const ForeignName* find_foreign_flag(std::string_view name, const std::function<bool(std::string_view)>& has);

/// Nullptr if no program has a command of that name.
const ForeignName* find_foreign_command(std::string_view name);

}  // namespace quire::cli
