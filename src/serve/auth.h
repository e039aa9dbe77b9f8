#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::serve {

using KeyDigest = std::array<unsigned char, 32>;  // SHA-256

/// One key of the API, without the key itself.
struct ApiKey {
  std::string name;  // for logs
  KeyDigest digest{};

  /// The tenant of its requests; not 0.
  uint64_t tenant() const;
};

/// Throws Error ("NAME: WHY", never with the key in it) if no client could send the key as a bearer token:
/// it is empty, or not printable ASCII without spaces.
ApiKey make_api_key(std::string name, std::string_view key);

/// The keys that may use the API. Immutable, thread-safe.
class ApiKeys {
 public:
  /// Throws Error, naming both, if two keys are the same.
  explicit ApiKeys(std::vector<ApiKey> keys);

  bool required() const { return !keys_.empty(); }
  /// The key in the Authorization header ("Bearer KEY"); nullptr if it has none of the keys. The time taken
  /// reveals nothing about the keys.
  const ApiKey* find(std::string_view authorization) const;

 private:
  const std::vector<ApiKey> keys_;
};

/// The salt that separates the cached blocks of requests, from `tenant` (0: none), `user` and `cache_salt`
/// (empty: none). 0 if all three are none. A cryptographic hash, so that no client can construct another's
/// salt.
uint64_t block_salt(uint64_t tenant, std::string_view user, std::string_view cache_salt);

/// `bytes` random bytes from the system's generator, in hex.
std::string random_hex(size_t bytes);
uint64_t random_seed();

}  // namespace quire::serve
