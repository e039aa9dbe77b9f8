#include "tokenize/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace quire::tokenize {
namespace {

struct Table {
  std::array<std::array<char, 2>, 256> written{};  // UTF-8, of one or two bytes
  std::array<uint8_t, 256> size{};
  std::array<int16_t, 0x144> byte_of{};  // by character; -1: none
};

Table make_table() {
  Table table;
  table.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    const char32_t code = printable ? static_cast<char32_t>(byte) : next++;
    std::string text;
    append_utf8(text, code);
    const auto i = static_cast<size_t>(byte);
    table.size[i] = static_cast<uint8_t>(text.size());
    for (size_t k = 0; k < text.size(); ++k) table.written[i][k] = text[k];
    table.byte_of[code] = static_cast<int16_t>(byte);
  }
  return table;
}

const Table& table() {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace

void append_byte_level(std::string& out, std::string_view bytes) {
  const Table& t = table();
  const size_t old_size = out.size();
  out.resize(old_size + 2 * bytes.size());
  char* to = out.data() + old_size;
  for (const char c : bytes) {
    const auto i = static_cast<unsigned char>(c);
    to[0] = t.written[i][0];
    to[1] = t.written[i][1];
    to += t.size[i];
  }
  out.resize(static_cast<size_t>(to - out.data()));
}

void append_from_byte_level(std::string& out, std::string_view text) {
  const Table& t = table();
  const size_t old_size = out.size();
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    pos += c.size;
    const int byte = c.code < t.byte_of.size() ? t.byte_of[c.code] : -1;
    if (byte < 0) {
      out.resize(old_size);
      out += text;
      return;
    }
    out.push_back(static_cast<char>(byte));
  }
}

}  // namespace quire::tokenize
