#include "tokenize/token_trie.h"

#include <algorithm>

namespace quire::tokenize {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, TokenId>> entries) : nodes_(1) {
  std::sort(entries.begin(), entries.end());
  // The entries below a node are a range of the sorted ones.
  struct Range {
    Node node;
    size_t begin;
    size_t end;
    size_t depth;
  };
  const auto label_of = [&](size_t i, size_t depth) { return static_cast<uint8_t>(entries[i].first[depth]); };
  std::vector<Range> open = {{kRoot, 0, entries.size(), 0}};
  std::vector<Range> below;
  while (!open.empty()) {
    Range range = open.back();
    open.pop_back();
    while (range.begin < range.end && entries[range.begin].first.size() == range.depth) {
      if (range.depth > 0) nodes_[range.node].token = entries[range.begin].second;
      ++range.begin;
    }
    below.clear();
    for (size_t i = range.begin; i < range.end;) {
      size_t end = i + 1;
      while (end < range.end && label_of(end, range.depth) == label_of(i, range.depth)) ++end;
      below.push_back({static_cast<Node>(nodes_.size() + below.size()), i, end, range.depth + 1});
      i = end;
    }
    const auto first = static_cast<uint32_t>(targets_.size());
    const auto count = static_cast<uint32_t>(below.size());
    nodes_[range.node].first = first;
    nodes_[range.node].count = count;
    const size_t links = count > kMaxScanned ? 256 : count;
    targets_.resize(first + links, kNone);
    labels_.resize(first + links);
    for (uint32_t i = 0; i < count; ++i) {
      const uint8_t label = label_of(below[i].begin, range.depth);
      const size_t at = first + (count > kMaxScanned ? label : i);
      labels_[at] = label;
      targets_[at] = below[i].node;
    }
    nodes_.resize(nodes_.size() + count);
    open.insert(open.end(), below.begin(), below.end());
  }
}

TokenTrie::Node TokenTrie::walk(Node node, std::string_view text) const {
  for (const char byte : text) {
    node = step(node, byte);
    if (node == kNone) break;
  }
  return node;
}

}  // namespace quire::tokenize
