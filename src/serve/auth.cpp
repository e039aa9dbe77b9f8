#include "serve/auth.h"

#include <cstring>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace quire {
namespace {

template <class Bytes>
uint64_t first_word(const Bytes& bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

void fill_random(unsigned char* out, size_t bytes) {
  if (RAND_bytes(out, static_cast<int>(bytes)) != 1) throw Error("the system gives no random numbers");
}

}  // namespace

ApiKeys::Digest ApiKeys::digest(std::string_view text) {
  Digest out;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) keys_.push_back(digest(key));
}

std::optional<uint64_t> ApiKeys::tenant(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (!boost::beast::iequals(authorization.substr(0, kScheme.size()), kScheme)) return std::nullopt;
  const Digest given = digest(authorization.substr(kScheme.size()));
  std::optional<uint64_t> found;
  for (const Digest& key : keys_) {
    // No early end: the time depends on the number of keys alone.
    if (CRYPTO_memcmp(given.data(), key.data(), key.size()) == 0) found = first_word(key) | 1;
  }
  return found;
}

uint64_t block_salt(uint64_t tenant, std::string_view user, std::string_view cache_salt) {
  if (tenant != 0) user = {};
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

}  // namespace quire
