#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quire::tokenize {

/// The contents of a SentencePiece model file (sentencepiece_model.proto) that tokenizing needs.
struct SentencePieceFile {
  enum class Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  enum class Model : uint8_t { kUnigram = 1, kBpe, kWord, kChar };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;

  // trainer_spec
  Model model = Model::kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  int32_t bos = 1;  // -1: none
  int32_t eos = 2;

  // normalizer_spec
  std::string charsmap;
  bool dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

/// Reads the protobuf. Ensures that texts are valid UTF-8, non-empty and unique, scores are finite, one piece
/// is the unknown piece, and with byte fallback there is one piece for every byte. Throws Error with file and
/// offset or piece.
SentencePieceFile read_sentencepiece(std::string_view bytes, const std::filesystem::path& where);

/// The bytes of a model file that reads back as the same.
std::string write_sentencepiece(const SentencePieceFile& file);

}  // namespace quire::tokenize
