#include "serve/auth.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <utility>

#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace quire::serve {
namespace {

template <class Bytes>
uint64_t first_word(const Bytes& bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

void fill_random(unsigned char* out, size_t bytes) {
  if (RAND_bytes(out, static_cast<int>(bytes)) != 1) throw Error("the system provides no random numbers");
}

KeyDigest digest(std::string_view text) {
  KeyDigest out;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

}  // namespace

uint64_t ApiKey::tenant() const { return first_word(digest) | 1; }

ApiKey make_api_key(std::string name, std::string_view key) {
  const auto sendable = [](char c) { return c > ' ' && c <= '~'; };
  if (key.empty()) throw Error(fmt::format("{}: the key is empty", name));
  if (!std::all_of(key.begin(), key.end(), sendable)) {
    throw Error(fmt::format("{}: a key must be printable ASCII without spaces", name));
  }
  return {std::move(name), digest(key)};
}

ApiKeys::ApiKeys(std::vector<ApiKey> keys) : keys_(std::move(keys)) {
  std::map<KeyDigest, std::string_view> known;
  for (const ApiKey& key : keys_) {
    const auto [first, added] = known.emplace(key.digest, key.name);
    if (!added) throw Error(fmt::format("{}: the same API key as {}", key.name, first->second));
  }
}

const ApiKey* ApiKeys::find(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (!boost::beast::iequals(authorization.substr(0, kScheme.size()), kScheme)) return nullptr;
  const KeyDigest given = digest(authorization.substr(kScheme.size()));
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_) {
    // No early end: the time depends on the number of keys alone.
    if (CRYPTO_memcmp(given.data(), key.digest.data(), given.size()) == 0) found = &key;
  }
  return found;
}

uint64_t block_salt(uint64_t tenant, std::string_view user, std::string_view cache_salt) {
  if (tenant == 0 && user.empty() && cache_salt.empty()) return 0;
  const std::string text = fmt::format("{} {} {}{}", tenant, user.size(), user, cache_salt);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> out;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return first_word(out) | 1;
}

std::string random_hex(size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  fill_random(raw.data(), raw.size());
  std::string out;
  for (const unsigned char byte : raw) out += fmt::format("{:02x}", byte);
  return out;
}

uint64_t random_seed() {
  std::array<unsigned char, sizeof(uint64_t)> raw;
  fill_random(raw.data(), raw.size());
  return first_word(raw);
}

}  // namespace quire::serve
