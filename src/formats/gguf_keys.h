#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "formats/gguf_names.h"

namespace quire::formats {

/// The keys of a file below its architecture's name. Remembers what was asked for, so that in the end the
/// rest can be refused or named. All throw Error naming file and key for a value that is none.
class GgufKeys {
 public:
  GgufKeys(const Gguf& file, const GgufFamily& family);

  bool has(std::string_view key) { return file_.has(full(key)); }
  /// In [min, max]. Also an array of one value a layer, if all are the same.
  int64_t size(std::string_view key, int64_t min = 1, int64_t max = UINT32_MAX);
  int64_t size_or(std::string_view key, int64_t otherwise, int64_t min = 1, int64_t max = UINT32_MAX) {
    return has(key) ? size(key, min, max) : otherwise;
  }
  double number(std::string_view key) { return file_.number(full(key)); }
  double number_or(std::string_view key, double otherwise) { return file_.number_or(full(key), otherwise); }
  /// Absent or 0, llama.cpp's way to say "none": `otherwise`. Throws below 0.
  double factor_or(std::string_view key, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise) { return file_.boolean_or(full(key), otherwise); }
  std::string_view string_or(std::string_view key, std::string_view otherwise) {
    return file_.string_or(full(key), otherwise);
  }
  /// To throw.
  Error error(std::string_view key, std::string_view what) { return file_.error(full(key), what); }

  /// Of what nobody asked for: throws for a key known to change the numbers, unless its value has no effect;
  /// warns of those that are not known.
  void check_others();

 private:
  std::string full(std::string_view key) { return *asked_.insert(prefix_ + std::string(key)).first; }

  const Gguf& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace quire::formats
