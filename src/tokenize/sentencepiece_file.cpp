#include "tokenize/sentencepiece_file.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <boost/unordered/unordered_flat_set.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/utf8.h"

namespace quire::tokenize {
namespace {

/// Reads the fields of one protobuf message, in the order in which they stand there.
class ProtoReader {
 public:
  /// `offset`: of `bytes` in the file, for errors.
  ProtoReader(std::string_view bytes, uint64_t offset, const std::filesystem::path& where)
      : bytes_(bytes), offset_(offset), where_(where) {}

  /// The next field's number; 0 at the end. Its value must be read by one of the calls below.
  uint32_t next() {
    if (pos_ == bytes_.size()) return 0;
    start_ = pos_;
    const uint64_t tag = varint();
    wire_ = static_cast<uint32_t>(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) fail("no field number");
    return static_cast<uint32_t>(tag >> 3);
  }

  uint64_t integer() {
    expect(0);
    return varint();
  }
  bool boolean() { return integer() != 0; }
  float real() {
    expect(5);
    const std::string_view raw = take(4);
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) bits |= uint32_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    return std::bit_cast<float>(bits);
  }
  std::string_view bytes() {
    expect(2);
    return take(varint());
  }
  ProtoReader message() {
    const std::string_view inner = bytes();
    return {inner, offset_ + static_cast<uint64_t>(inner.data() - bytes_.data()), where_};
  }
  void skip() {
    switch (wire_) {
      case 0:
        varint();
        return;
      case 1:
        take(8);
        return;
      case 2:
        take(varint());
        return;
      case 5:
        take(4);
        return;
      default:
        fail(fmt::format("wire type {} is unknown", wire_));
    }
  }

  /// Of the field that was read last.
  [[noreturn]] void fail(std::string_view what) const { throw file_error(where_, offset_ + start_, what); }

 private:
  void expect(uint32_t wire) const {
    if (wire_ != wire) fail(fmt::format("a field of wire type {}, not {}", wire_, wire));
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (pos_ == bytes_.size()) fail("the file ends inside a number");
      const auto byte = static_cast<unsigned char>(bytes_[pos_++]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - pos_) fail("a field is longer than the rest of the file");
    const std::string_view taken = bytes_.substr(pos_, size);
    pos_ += size;
    return taken;
  }

  std::string_view bytes_;
  uint64_t offset_;
  const std::filesystem::path& where_;
  size_t pos_ = 0;
  size_t start_ = 0;
  uint32_t wire_ = 0;
};

SentencePieceFile::Piece read_piece(ProtoReader message) {
  SentencePieceFile::Piece piece;
  while (const uint32_t field = message.next()) {
    if (field == 1) {
      piece.text = message.bytes();
      if (!is_valid_utf8(piece.text)) message.fail("a piece is not UTF-8");
    } else if (field == 2) {
      piece.score = message.real();
      if (!std::isfinite(piece.score)) message.fail("a piece's score is not a number");
    } else if (field == 3) {
      const uint64_t type = message.integer();
      if (type < 1 || type > 6) message.fail(fmt::format("a piece of the unknown type {}", type));
      piece.type = static_cast<SentencePieceFile::Type>(type);
    } else {
      message.skip();
    }
  }
  if (piece.text.empty()) message.fail("a piece is empty");
  return piece;
}

void read_trainer(ProtoReader message, SentencePieceFile& file) {
  while (const uint32_t field = message.next()) {
    switch (field) {
      case 3: {
        const uint64_t type = message.integer();
        if (type < 1 || type > 4) message.fail(fmt::format("the unknown model type {}", type));
        file.model = static_cast<SentencePieceFile::Model>(type);
        break;
      }
      case 24:
        file.whitespace_as_suffix = message.boolean();
        break;
      case 35:
        file.byte_fallback = message.boolean();
        break;
      case 41:
        file.bos = static_cast<int32_t>(message.integer());
        break;
      case 42:
        file.eos = static_cast<int32_t>(message.integer());
        break;
      default:
        message.skip();
    }
  }
}

void read_normalizer(ProtoReader message, SentencePieceFile& file) {
  while (const uint32_t field = message.next()) {
    switch (field) {
      case 2:
        file.charsmap = message.bytes();
        break;
      case 3:
        file.dummy_prefix = message.boolean();
        break;
      case 4:
        file.remove_extra_whitespaces = message.boolean();
        break;
      case 5:
        file.escape_whitespaces = message.boolean();
        break;
      default:
        message.skip();
    }
  }
}

void check_pieces(const SentencePieceFile& file, const std::filesystem::path& where) {
  using Type = SentencePieceFile::Type;
  boost::unordered_flat_set<std::string_view> texts;
  size_t unknown = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto refuse = [&](std::string_view what) {
      throw file_error(where, fmt::format("piece {} '{}': {}", i, file.pieces[i].text, what));
    };
    const std::string_view text = file.pieces[i].text;
    if (!texts.insert(text).second) refuse("the same text as an earlier piece");
    if (file.pieces[i].type == Type::kUnknown && ++unknown > 1) refuse("a second unknown piece");
    if (file.pieces[i].type != Type::kByte) continue;
    ++bytes;
    if (!file.byte_fallback) refuse("a byte, but trainer_spec.byte_fallback is false");
    unsigned value = 0;
    if (text.size() != 6 || std::sscanf(std::string(text).c_str(), "<0x%2X>", &value) != 1 ||
        fmt::format("<0x{:02X}>", value) != text) {
      refuse("not in the form of a byte piece");
    }
  }
  if (unknown == 0) throw file_error(where, "no piece is of the type UNKNOWN");
  if (file.byte_fallback && bytes != 256) {
    throw file_error(where,
                     fmt::format("{} of the 256 byte pieces that trainer_spec.byte_fallback needs", bytes));
  }
}

}  // namespace

SentencePieceFile read_sentencepiece(std::string_view bytes, const std::filesystem::path& where) {
  SentencePieceFile file;
  ProtoReader message(bytes, 0, where);
  while (const uint32_t field = message.next()) {
    if (field == 1) {
      file.pieces.push_back(read_piece(message.message()));
    } else if (field == 2) {
      read_trainer(message.message(), file);
    } else if (field == 3) {
      read_normalizer(message.message(), file);
    } else {
      message.skip();
    }
  }
  if (file.pieces.size() > INT32_MAX / 2) throw file_error(where, "too many pieces");
  check_pieces(file, where);
  return file;
}

}  // namespace quire::tokenize
