#include "tokenize/bpe.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <random>

#include <boost/json/serialize.hpp>
#include <gtest/gtest.h>

#include "base/json.h"

namespace quire::tokenize {
namespace {

std::string byte_token(int byte) {
  std::array<char, 8> name{};
  std::snprintf(name.data(), name.size(), "<0x%02X>", static_cast<unsigned>(byte));
  return name.data();
}

/// A random vocabulary over few letters: every letter, some bytes, and what random merges make.
struct RandomModel {
  std::vector<std::string> texts;
  std::vector<std::pair<std::string, std::string>> merges;

  explicit RandomModel(std::mt19937& rng) {
    for (const char* letter : {"a", "b", "c", "é", "日", "▁"}) {
      if (rng() % 5 != 0) texts.emplace_back(letter);
    }
    texts.emplace_back("<unk>");
    std::vector<std::string> mergeable = texts;
    if (rng() % 2 == 0) {
      for (int byte = 0; byte < 256; ++byte) texts.push_back(byte_token(byte));
      for (const int byte : {0x78, 0xC3, 0xA9}) mergeable.push_back(byte_token(byte));
    }
    for (size_t i = rng() % 40; i > 0; --i) {
      const std::string left = mergeable[rng() % mergeable.size()];
      const std::string right = mergeable[rng() % mergeable.size()];
      if (left.size() + right.size() > 24) continue;
      merges.emplace_back(left, right);
      if (std::find(texts.begin(), texts.end(), left + right) != texts.end()) continue;
      texts.push_back(left + right);
      mergeable.push_back(left + right);
    }
  }

  json::value to_json(bool fuse) const {
    json::object vocab;
    for (size_t i = 0; i < texts.size(); ++i) vocab[texts[i]] = i;
    json::array list;
    for (const auto& [left, right] : merges) list.push_back(json::array{left, right});
    return json::object{{"type", "BPE"},    {"unk_token", "<unk>"}, {"byte_fallback", true},
                        {"fuse_unk", fuse}, {"vocab", vocab},       {"merges", list}};
  }
};

/// The definition: of all pairs that may merge the lowest rank, leftmost, again and again.
std::vector<TokenId> merge_plainly(const RandomModel& model, std::vector<TokenId> ids) {
  std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> ranks;
  const auto id_of = [&](const std::string& text) {
    return static_cast<TokenId>(std::find(model.texts.begin(), model.texts.end(), text) -
                                model.texts.begin());
  };
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const auto& [left, right] = model.merges[rank];
    ranks[{id_of(left), id_of(right)}] = {rank, id_of(left + right)};
  }
  while (true) {
    size_t best_rank = SIZE_MAX;
    size_t best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second.first >= best_rank) continue;
      best_rank = found->second.first;
      best = i;
    }
    if (best_rank == SIZE_MAX) return ids;
    ids[best] = ranks.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

/// Symbols of a text before any merge.
std::vector<TokenId> symbols(const RandomModel& model, const std::vector<std::string>& characters,
                             bool fuse) {
  std::vector<TokenId> ids;
  const auto id_of = [&](const std::string& text) {
    const auto found = std::find(model.texts.begin(), model.texts.end(), text);
    return found == model.texts.end() ? -1 : static_cast<TokenId>(found - model.texts.begin());
  };
  const TokenId unknown = id_of("<unk>");
  bool after_unknown = false;
  for (const std::string& character : characters) {
    const TokenId id = id_of(character);
    if (id >= 0) {
      ids.push_back(id);
    } else if (id_of("<0x00>") >= 0) {
      for (const char c : character) {
        ids.push_back(id_of(byte_token(static_cast<unsigned char>(c))));
      }
    } else if (!fuse || !after_unknown) {
      ids.push_back(unknown);
    }
    after_unknown = id < 0;
  }
  return ids;
}

// Long texts are cut where no merge can reach across, and words are remembered: neither may show.
TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 rng(21);
  for (int round = 0; round < 400; ++round) {
    const RandomModel model(rng);
    const bool fuse = rng() % 2 == 0;
    const json::value value = model.to_json(fuse);
    const std::filesystem::path where = "test";
    const auto bpe = Bpe::from_json(JsonObject(value, where));
    const auto run = bpe->start(1000);
    for (int k = 0; k < 10; ++k) {
      static const std::vector<std::string> kCharacters = {"a", "b", "c", "é", "日", "▁", "x", "😀"};
      std::vector<std::string> characters;
      std::string text;
      for (size_t i = 1 + rng() % 60; i > 0; --i) {
        characters.push_back(kCharacters[rng() % (rng() % 4 == 0 ? kCharacters.size() : 3)]);
        text += characters.back();
      }
      std::vector<TokenId> ids;
      run->encode(text, ids);
      ASSERT_EQ(ids, merge_plainly(model, symbols(model, characters, fuse)))
          << text << json::serialize(value);
    }
  }
}

}  // namespace
}  // namespace quire::tokenize
