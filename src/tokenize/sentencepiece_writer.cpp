#include <bit>

#include "tokenize/sentencepiece_file.h"

namespace quire::tokenize {
namespace {

/// The fields of one protobuf message, one after the other.
class ProtoWriter {
 public:
  void integer(uint32_t field, uint64_t value) {
    tag(field, 0);
    varint(value);
  }
  void real(uint32_t field, float value) {
    tag(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (unsigned shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xffU);
  }
  void bytes(uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(uint32_t field, const ProtoWriter& value) { bytes(field, value.bytes_); }
  const std::string& all() const { return bytes_; }

 private:
  void tag(uint32_t field, uint32_t wire) { varint(uint64_t{field} << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7fU) | 0x80U);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// A negative int32 has the ten bytes of the same int64.
uint64_t as_field(int32_t value) { return static_cast<uint64_t>(int64_t{value}); }

}  // namespace

std::string write_sentencepiece(const SentencePieceFile& file) {
  ProtoWriter out;
  int32_t unknown = 0;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& each = file.pieces[id];
    if (each.type == SentencePieceFile::Type::kUnknown) unknown = static_cast<int32_t>(id);
    ProtoWriter piece;
    piece.bytes(1, each.text);
    piece.real(2, each.score);
    if (each.type != SentencePieceFile::Type::kNormal) piece.integer(3, static_cast<uint64_t>(each.type));
    out.message(1, piece);
  }
  ProtoWriter trainer;
  trainer.integer(3, static_cast<uint64_t>(file.model));
  trainer.integer(4, file.pieces.size());
  if (file.whitespace_as_suffix) trainer.integer(24, 1);
  trainer.integer(35, file.byte_fallback ? 1 : 0);
  trainer.integer(40, as_field(unknown));
  trainer.integer(41, as_field(file.bos));
  trainer.integer(42, as_field(file.eos));
  trainer.integer(43, as_field(-1));
  // The pieces of these ids, which the library asks for by text.
  const auto text = [&](uint32_t field, int32_t id) {
    if (id >= 0 && static_cast<size_t>(id) < file.pieces.size()) {
      trainer.bytes(field, file.pieces[static_cast<size_t>(id)].text);
    }
  };
  text(45, unknown);
  text(46, file.bos);
  text(47, file.eos);
  out.message(2, trainer);
  ProtoWriter normalizer;
  normalizer.bytes(1, "identity");
  normalizer.bytes(2, file.charsmap);
  normalizer.integer(3, file.dummy_prefix ? 1 : 0);
  normalizer.integer(4, file.remove_extra_whitespaces ? 1 : 0);
  normalizer.integer(5, file.escape_whitespaces ? 1 : 0);
  out.message(3, normalizer);
  return out.all();
}

}  // namespace quire::tokenize
