#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

/// Bytes at the head of `bytes` that are ASCII, eight at a time.
size_t ascii_prefix(std::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080ull) != 0) break;
  }
  while (i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
  return i;
}

/// Bytes at the head of `bytes` that are whole characters; `after` describes what stops there, if anything.
size_t valid_prefix(std::string_view bytes, Utf8Scan& after) {
  size_t i = 0;
  while (true) {
    i += ascii_prefix(bytes.substr(i));
    if (i == bytes.size()) {
      after = {Utf8Status::kValid, 0};
      return i;
    }
    after = scan_utf8(bytes.substr(i));
    if (after.status != Utf8Status::kValid) return i;
    i += after.size;
  }
}

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {Utf8Status::kValid, 1};
  // The range of the second byte excludes overlong forms, surrogates and values beyond Unicode.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  uint32_t size = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    size = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    size = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    size = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {Utf8Status::kInvalid, 1};
  }
  for (uint32_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Status::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Status::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::kValid, size};
}

size_t count_utf8(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return !continues_utf8(byte); }));
}

std::string_view utf8_prefix(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && continues_utf8(text[most])) --most;
  return text.substr(0, most);
}

bool is_ascii(std::string_view text) { return ascii_prefix(text) == text.size(); }

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

Utf8Char utf8_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && continues_utf8(text[begin])) --begin;
  return utf8_at(text, begin);
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_one_char(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Scan scan = scan_utf8(text);
  return scan.status == Utf8Status::kValid && scan.size == text.size();
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Repair repair;
  repair.push(bytes, out);
  repair.finish(out);
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  Utf8Scan after{};
  return valid_prefix(bytes, after) == bytes.size();
}

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (held_size_ > 0) {
      held_[held_size_] = bytes.front();
      const Utf8Scan scan = scan_utf8({held_.data(), held_size_ + 1});
      if (scan.status == Utf8Status::kInvalid) {
        // The new byte is not part of the invalid sequence: scan it again separately.
        out += kReplacementCharacter;
        held_size_ = 0;
        continue;
      }
      ++held_size_;
      bytes.remove_prefix(1);
      if (scan.status == Utf8Status::kValid) {
        out.append(held_.data(), held_size_);
        held_size_ = 0;
      }
      continue;
    }
    Utf8Scan after{};
    const size_t good = valid_prefix(bytes, after);
    out.append(bytes.substr(0, good));
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    if (after.status == Utf8Status::kIncomplete) {
      held_size_ = after.size;
      std::memcpy(held_.data(), bytes.data(), held_size_);
      return;
    }
    out += kReplacementCharacter;
    bytes.remove_prefix(after.size);
  }
}

void Utf8Repair::finish(std::string& out) {
  if (held_size_ > 0) out += kReplacementCharacter;
  held_size_ = 0;
}

}  // namespace quire
