#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

/// The keys that may use the API. Keeps their digests alone. Immutable, thread-safe.
class ApiKeys {
 public:
  explicit ApiKeys(const std::vector<std::string>& keys);

  bool required() const { return !keys_.empty(); }
  /// The tenant whose key the Authorization header has ("Bearer KEY"), not 0; nothing if it has none. The
  /// time this takes says nothing about the keys.
  std::optional<uint64_t> tenant(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest(std::string_view text);
  std::vector<Digest> keys_;
};

/// What separates the cached blocks of tenants: of `tenant` (0: none; then `user` stands for it) and
/// `cache_salt`. 0 if there is nothing to separate. A cryptographic hash, so that nobody can aim at
/// another's.
uint64_t block_salt(uint64_t tenant, std::string_view user, std::string_view cache_salt);

/// `bytes` random bytes of the system's generator, in hex.
std::string random_hex(size_t bytes);
uint64_t random_seed();

}  // namespace quire
