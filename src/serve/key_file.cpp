#include "serve/key_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "base/log.h"
#include "base/trim.h"

namespace quire::serve {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 64;
constexpr std::string_view kHashed = "sha256";

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t colon = line.find(':');
    out.push_back(trim(line.substr(0, colon)));
    if (colon == std::string_view::npos) return out;
    line.remove_prefix(colon + 1);
  }
}

std::optional<KeyDigest> parse_digest(std::string_view hex) {
  KeyDigest out;
  if (hex.size() != 2 * out.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(hex[i])));
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    unsigned char& byte = out[i / 2];
    byte = static_cast<unsigned char>(i % 2 == 0 ? digit << 4 : byte | digit);
  }
  return out;
}

bool is_key_name(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) ||
           std::string_view("._@-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), fits);
}

/// The reasons of errors never quote the line: it may hold a key.
ApiKey parse_key(std::string_view line, bool& hashed) {
  const std::vector<std::string_view> columns = columns_of(line);
  if (columns.size() < 2) throw Error("neither NAME:KEY nor NAME:sha256:HEX");
  if (!is_key_name(columns[0])) {
    throw Error(fmt::format("a name is 1 to {} letters, digits and ._@-", kMaxNameBytes));
  }
  hashed = columns[1] == kHashed;
  if (columns.size() > (hashed ? 3 : 2)) {
    throw Error(
        "an unknown column after NAME:KEY or NAME:sha256:HEX (a key with a colon can be given by its "
        "SHA-256)");
  }
  if (!hashed) return make_api_key(std::string(columns[0]), columns[1]);
  const auto digest = columns.size() == 3 ? parse_digest(columns[2]) : std::nullopt;
  if (!digest) throw Error("sha256 is not followed by 64 hex digits");
  return {std::string(columns[0]), *digest};
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw file_error(path, std::generic_category().message(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw file_error(path, "cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) throw file_error(path, "a file of keys may have at most 1 MiB");
  return text;
}

/// Throws Error if another user may add a key. The groups' members are not looked up: keys are secrets, and
/// no group needs to write them.
void refuse_file_of_others(const std::filesystem::path& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) throw file_error(path, std::generic_category().message(errno));
  if (!S_ISREG(facts.st_mode) && !S_ISFIFO(facts.st_mode)) throw file_error(path, "not a regular file");
  if (facts.st_uid != geteuid() && facts.st_uid != 0) {
    throw file_error(path, fmt::format("it belongs to another user (uid {}), who could add a key (chown, or "
                                       "a copy with chmod 600, fixes this)",
                                       facts.st_uid));
  }
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw file_error(
        path,
        fmt::format("other users have write access (mode {:o}) and could add a key (chmod 600 fixes this)",
                    facts.st_mode & 07777));
  }
}

}  // namespace

std::vector<ApiKey> read_key_file(const std::filesystem::path& path) {
  using std::filesystem::perms;
  refuse_file_of_others(path);
  const std::string text = read_text(path);
  const perms mode = std::filesystem::status(path).permissions();
  std::vector<ApiKey> keys;
  std::map<std::string, size_t> names;  // and the lines where they are
  std::map<KeyDigest, size_t> digests;
  bool has_plain = false;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trim(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    try {
      bool hashed = false;
      ApiKey key = parse_key(line, hashed);
      has_plain = has_plain || !hashed;
      if (const auto [first, added] = names.emplace(key.name, number); !added) {
        throw Error(fmt::format("the name {} is already on line {}", key.name, first->second));
      }
      if (const auto [first, added] = digests.emplace(key.digest, number); !added) {
        throw Error(fmt::format("this key is already on line {}", first->second));
      }
      keys.push_back(std::move(key));
    } catch (const Error& error) {
      throw file_error(path, fmt::format("line {}: {}", number, error.what()));
    }
  }
  if (keys.empty()) throw file_error(path, "it contains no key");
  if (has_plain && (mode & (perms::group_read | perms::others_read)) != perms::none) {
    log_warning(
        fmt::format("{}: other users can read the keys in it (chmod 600, or NAME:sha256:HEX, fixes this)",
                    path.string()));
  }
  return keys;
}

}  // namespace quire::serve
