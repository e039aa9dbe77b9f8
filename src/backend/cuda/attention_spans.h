#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

// How attention divides keys, for host code that knows no kernel.
namespace quire::backend::cuda {

inline constexpr uint32_t kSpanKeys = 1024;
inline constexpr uint32_t kSpanScores = 2;  // of a span's partial result: its maximum and its sum

/// The first key that the last token of `length` sees.
constexpr uint32_t first_key(uint32_t length, uint32_t window) {
  return window != 0 && length > window ? length - window : 0;
}

/// The spans that the last token of a sequence of `length` keys sees.
constexpr uint32_t attention_spans(uint32_t length, uint32_t window) {
  return (length - 1) / kSpanKeys - first_key(length, window) / kSpanKeys + 1;
}

/// At least those of every sequence of up to `length` keys.
constexpr uint32_t most_attention_spans(uint32_t length, uint32_t window) {
  const uint32_t all = attention_spans(length, 0);
  // Of a window, the first and the last span may be touched by one key each.
  return window == 0 ? all : std::min(all, (window + kSpanKeys - 2) / kSpanKeys + 1);
}

/// The floats that the partial results of a query row's heads take in so many spans.
constexpr size_t partial_floats(uint32_t num_heads, uint32_t head_dim, uint32_t spans) {
  return size_t{num_heads} * spans * (head_dim + kSpanScores);
}

}  // namespace quire::backend::cuda
