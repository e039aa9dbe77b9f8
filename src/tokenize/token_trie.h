#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire::tokenize {

/// The entries of a vocabulary by their bytes, to find all entries that a text starts with in one walk.
/// Immutable and thread-safe.
class TokenTrie {
 public:
  using Node = uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = UINT32_MAX;

  TokenTrie() : nodes_(1) {}
  /// Empty texts are ignored; of equal texts, one is kept.
  explicit TokenTrie(std::vector<std::pair<std::string_view, TokenId>> entries);

  /// The node after one more byte; kNone if no entry continues with it.
  Node step(Node node, char byte) const {
    const Links& links = nodes_[node];
    const auto label = static_cast<unsigned char>(byte);
    if (links.count > kMaxScanned) return targets_[links.first + label];
    for (uint32_t i = links.first; i < links.first + links.count; ++i) {
      if (labels_[i] == label) return targets_[i];
    }
    return kNone;
  }
  /// The node after all bytes of `text`, from `node` on.
  Node walk(Node node, std::string_view text) const;
  /// The entry that ends at this node; -1: none.
  TokenId token(Node node) const { return nodes_[node].token; }

 private:
  // The links of a node are adjacent; a node with many links has one for every byte.
  static constexpr uint32_t kMaxScanned = 12;
  struct Links {
    uint32_t first = 0;
    uint32_t count = 0;
    TokenId token = -1;
  };

  std::vector<Links> nodes_;
  std::vector<uint8_t> labels_;
  std::vector<Node> targets_;
};

}  // namespace quire::tokenize
