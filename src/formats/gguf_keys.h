#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "formats/gguf_names.h"

namespace quire::formats {

/// The keys of a file below its architecture's name. Records the keys that were read, so that the others can
/// be refused or named at the end. All throw Error naming file and key for an invalid value.
class GgufKeys {
 public:
  GgufKeys(const Gguf& file, const GgufFamily& family);

  bool has(std::string_view key) { return file_.has(full(key)); }
  /// In [min, max]. Also accepts an array with one value per layer if all are equal.
  int64_t size(std::string_view key, int64_t min = 1, int64_t max = UINT32_MAX);
  int64_t size_or(std::string_view key, int64_t otherwise, int64_t min = 1, int64_t max = UINT32_MAX) {
    return has(key) ? size(key, min, max) : otherwise;
  }
  double number(std::string_view key) { return file_.number(full(key)); }
  double number_or(std::string_view key, double otherwise) { return file_.number_or(full(key), otherwise); }
  /// `otherwise` if absent or 0, which llama.cpp writes for "none". Throws if negative.
  double factor_or(std::string_view key, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise) { return file_.boolean_or(full(key), otherwise); }
  std::string_view string_or(std::string_view key, std::string_view otherwise) {
    return file_.string_or(full(key), otherwise);
  }
  /// The Error to throw.
  Error error(std::string_view key, std::string_view what) { return file_.error(full(key), what); }

  /// For the keys that were not read: throws for a key that is known to affect the results, unless its value
  /// has no effect; warns of unknown keys.
  void check_others();

 private:
  std::string full(std::string_view key) { return *asked_.insert(prefix_ + std::string(key)).first; }

  const Gguf& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace quire::formats
