#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/cpu/table.h"

namespace quire::kernels {
namespace {

// Query heads x tokens that share the reading of K and V: the more the better, while each thread has some
// items.
constexpr uint32_t kMostRowsPerTile = 384;
constexpr uint32_t kLeastRowsPerTile = 96;
constexpr size_t kItemsPerThread = 4;
constexpr size_t kPiecesOfOneMissing = 16;
constexpr size_t kConvertChunk = 256;  // elements
constexpr size_t kLine = 64;

/// Calls body(seq, first token of it, number) for the tokens [begin, end) of the batch's numbering.
template <class Body>
void for_tokens(std::span<const AttentionSeq> seqs, size_t begin, size_t end, const Body& body) {
  size_t first = 0;
  for (const AttentionSeq& seq : seqs) {
    const size_t last = first + seq.num_rows;
    if (last > begin && first < end) {
      const size_t from = std::max(first, begin);
      const size_t to = std::min(last, end);
      for (size_t token = from; token < to; ++token) body(seq, static_cast<uint32_t>(token - first));
    }
    first = last;
  }
}

/// Where a block's parts for one token and K/V head lie.
struct TokenPlace {
  TokenPlace(const KvLayout& layout, std::byte* block, uint32_t in_block, uint32_t head) {
    const size_t bytes = dtype_bytes(layout.dtype);
    const uint32_t key_step = cpu::key_step(layout.dtype);
    const uint32_t value_step = cpu::value_step(layout.dtype);
    const size_t head_bytes = size_t{layout.block_size} * layout.head_dim * bytes;
    const uint32_t lane = in_block % cpu::kTileKeys;
    key = block + head * head_bytes + (size_t{in_block - lane} * layout.head_dim + lane * key_step) * bytes;
    value = block + (layout.num_kv_heads + head) * head_bytes +
            (size_t{in_block - in_block % value_step} * layout.head_dim + in_block % value_step) * bytes;
    key_scale = reinterpret_cast<float*>(block + 2 * layout.num_kv_heads * head_bytes) +
                size_t{head} * layout.block_size + in_block;
    value_scale = key_scale + size_t{layout.num_kv_heads} * layout.block_size;
  }
  std::byte* key;    // groups of `key_step` elements lie kTileKeys * key_step apart
  std::byte* value;  // elements lie `value_step` apart
  float* key_scale;  // of int8
  float* value_scale;
};

/// Stores units of kBytes `distance` units apart.
template <size_t kBytes>
void spread(const std::byte* from, std::byte* to, size_t count, size_t distance) {
  for (size_t i = 0; i < count; ++i) std::memcpy(to + i * distance * kBytes, from + i * kBytes, kBytes);
}

void write_int8_token(const cpu::KernelTable& kernels, const KvLayout& layout, std::byte* block,
                      uint32_t in_block, const float* k, const float* v) {
  thread_local std::vector<int8_t> rounded;
  rounded.resize(layout.head_dim);
  for (uint32_t head = 0; head < layout.num_kv_heads; ++head) {
    const TokenPlace place(layout, block, in_block, head);
    const size_t first = size_t{head} * layout.head_dim;
    *place.key_scale = kernels.quantize(k + first, rounded.data(), layout.head_dim);
    spread<cpu::kInt8KeyStep>(reinterpret_cast<const std::byte*>(rounded.data()), place.key,
                              layout.head_dim / cpu::kInt8KeyStep, cpu::kTileKeys);
    *place.value_scale = kernels.quantize(v + first, reinterpret_cast<int8_t*>(place.value), layout.head_dim);
  }
}

/// One token's K and V, all heads, into its block.
void write_token(const cpu::KernelTable& kernels, const KvLayout& layout, std::byte* block, uint32_t in_block,
                 const float* k, const float* v) {
  if (layout.dtype == DType::kI8) return write_int8_token(kernels, layout, block, in_block, k, v);
  const size_t bytes = dtype_bytes(layout.dtype);
  const size_t step = cpu::value_step(layout.dtype);  // which is that of keys, too
  const auto round = kernels.from_f32[cpu::float_index(layout.dtype)];
  for (uint32_t head = 0; head < layout.num_kv_heads; ++head) {
    const TokenPlace place(layout, block, in_block, head);
    for (size_t d0 = 0; d0 < layout.head_dim; d0 += kConvertChunk) {
      alignas(float) std::byte rounded[kConvertChunk * sizeof(float)];
      const size_t count = std::min<size_t>(kConvertChunk, layout.head_dim - d0);
      round(k + size_t{head} * layout.head_dim + d0, rounded, count);
      std::byte* to = place.key + d0 * cpu::kTileKeys * bytes;
      if (bytes * step == 4) {
        spread<4>(rounded, to, count / step, cpu::kTileKeys);
      } else {
        spread<2>(rounded, to, count, cpu::kTileKeys);
      }
      const float* values = v + size_t{head} * layout.head_dim + d0;
      if (step == 1) {
        round(values, place.value + d0 * bytes, count);
      } else {
        round(values, rounded, count);
        spread<2>(rounded, place.value + d0 * step * bytes, count, step);
      }
    }
  }
}

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The spans of keys that consecutive tokens see.
struct Spans {
  uint32_t first;
  uint32_t count;
};
Spans seen_spans(uint32_t first_position, uint32_t num_tokens, uint32_t window) {
  const uint32_t first_key = window != 0 && first_position >= window ? first_position - window + 1 : 0;
  const uint32_t first = first_key / cpu::kSpanKeys;
  return {first, (first_position + num_tokens - 1) / cpu::kSpanKeys - first + 1};
}

size_t most_spans(std::span<const AttentionSeq> seqs, uint32_t window) {
  uint32_t most = 1;
  for (const AttentionSeq& seq : seqs) {
    if (seq.num_rows > 0) most = std::max(most, seen_spans(seq.first_position, seq.num_rows, window).count);
  }
  return most;
}

/// Attention of a batch, cut into items: a query tile and one K/V head each, or several.
class AttentionPass {
 public:
  AttentionPass(KernelContext& context, const KvLayout& layout, const std::byte* cache,
                std::span<const AttentionSeq> seqs, const AttentionParams& params, const float* q, size_t ldq,
                float* out, size_t ldo)
      : pool_(context.pool),
        kernels_(cpu::table(context.isa)),
        layout_(layout),
        cache_(cache),
        seqs_(seqs),
        params_(params),
        q_(q),
        ldq_(ldq),
        out_(out),
        ldo_(ldo),
        group_(params.num_heads / layout.num_kv_heads),
        tokens_per_tile_(choose_tokens_per_tile()),
        heads_of_few_(choose_heads()),
        padded_dim_(round_up(layout.head_dim, 16)) {
    const size_t rows = std::max(size_t{tokens_per_tile_} * group_, heads_of_few_ * most_few_rows());
    span_floats_ = rows * cpu::partial_floats(padded_dim_);
    thread_bytes_ = round_up(cpu::attention_scratch_floats(rows, padded_dim_) * sizeof(float), kLine);
    lay_out(context.scratch);
  }

  void run() const {
    if (spans_ == 1) {
      for_each(items_, [&](size_t item, uint32_t thread) { attend(args_of(item, thread)); });
      return;
    }
    for_each(items_ * spans_,
             [&](size_t i, uint32_t thread) { attend_span(i / spans_, i % spans_, thread); });
  }

 private:
  /// The scratch memory: the first item of each sequence, room for each thread, the spans' partials.
  void lay_out(Buffer& scratch) {
    items_ = num_items(heads_of_few_);
    spans_ = shared_spans(items_);
    const size_t index_bytes = round_up(seqs_.size() * sizeof(size_t), kLine);
    const size_t threads_bytes = pool_.num_threads() * thread_bytes_;
    const size_t missing_bytes = spans_ > 1 ? round_up(items_ * sizeof(uint32_t), kLine) : 0;
    const size_t partial_bytes = spans_ > 1 ? items_ * spans_ * span_floats_ * sizeof(float) : 0;
    scratch.reserve(index_bytes + threads_bytes + missing_bytes + partial_bytes);
    first_item_ = scratch.as<size_t>();
    threads_ = scratch.data() + index_bytes;
    missing_ = reinterpret_cast<uint32_t*>(threads_ + threads_bytes);
    partials_ = reinterpret_cast<float*>(threads_ + threads_bytes + missing_bytes);
    size_t first = 0;
    for (size_t i = 0; i < seqs_.size(); ++i) {
      first_item_[i] = first;
      first += items_of(seqs_[i], heads_of_few_);
    }
    for (size_t item = 0; spans_ > 1 && item < items_; ++item)
      missing_[item] = spans_of(args_of(item, 0)).count;
  }

  uint32_t choose_tokens_per_tile() const {
    uint32_t rows = kMostRowsPerTile;
    const auto tokens = [&] { return std::max(1U, rows / group_); };
    const size_t wanted = kItemsPerThread * pool_.num_threads();
    while (rows > kLeastRowsPerTile && num_tiles(tokens()) * layout_.num_kv_heads < wanted) rows /= 2;
    return tokens();
  }

  /// Too few items do not keep the threads busy: they share the spans of each.
  size_t shared_spans(size_t items) const {
    const bool few = kernels_.merge_spans != nullptr && items < 2 * pool_.num_threads();
    return few ? most_spans(seqs_, params_.window) : 1;
  }

  /// Of few rows, K and V of the heads follow each other in a block, and memory is read the faster the longer
  /// the runs are. The most heads that leave the threads enough to share, so that none waits long for the
  /// last.
  uint32_t choose_heads() const {
    const size_t threads = pool_.num_threads();
    size_t all = 0;  // keys times query tokens, of one K/V head
    size_t longest = 0;
    for (const AttentionSeq& seq : seqs_) {
      all += keys_of(seq) * seq.num_rows;
      if (is_few(seq)) longest = std::max(longest, keys_of(seq) * seq.num_rows);
    }
    if (longest == 0) return 1;
    for (uint32_t heads = layout_.num_kv_heads; heads > 1; --heads) {
      if (layout_.num_kv_heads % heads != 0) continue;
      const size_t items = num_items(heads);
      const size_t spans = shared_spans(items);
      const size_t pieces = items * spans;
      const size_t missing = round_up(pieces, threads) - pieces;
      const size_t piece = heads * ((longest + spans - 1) / spans);
      const bool enough = piece * kItemsPerThread * threads <= all * layout_.num_kv_heads;
      if (enough && missing <= pieces / kPiecesOfOneMissing) return heads;
    }
    return 1;
  }

  size_t keys_of(const AttentionSeq& seq) const {
    const size_t end = size_t{seq.first_position} + seq.num_rows;
    return params_.window == 0 ? end : std::min(end, size_t{params_.window} + seq.num_rows);
  }
  bool is_few(const AttentionSeq& seq) const {
    return seq.num_rows > 0 && size_t{seq.num_rows} * group_ <= cpu::kFewRows;
  }
  size_t most_few_rows() const {
    size_t most = 0;
    for (const AttentionSeq& seq : seqs_) {
      if (is_few(seq)) most = std::max(most, size_t{seq.num_rows} * group_);
    }
    return most;
  }
  uint32_t heads_of(const AttentionSeq& seq, uint32_t heads_of_few) const {
    return is_few(seq) ? heads_of_few : 1;
  }
  size_t items_of(const AttentionSeq& seq, uint32_t heads_of_few) const {
    return tiles_of(seq, tokens_per_tile_) * (layout_.num_kv_heads / heads_of(seq, heads_of_few));
  }
  size_t num_items(uint32_t heads_of_few) const {
    size_t items = 0;
    for (const AttentionSeq& seq : seqs_) items += items_of(seq, heads_of_few);
    return items;
  }

  static size_t tiles_of(const AttentionSeq& seq, uint32_t tokens_per_tile) {
    return (seq.num_rows + tokens_per_tile - 1) / tokens_per_tile;
  }
  size_t num_tiles(uint32_t tokens_per_tile) const {
    size_t tiles = 0;
    for (const AttentionSeq& seq : seqs_) tiles += tiles_of(seq, tokens_per_tile);
    return tiles;
  }

  Spans spans_of(const cpu::AttentionArgs& args) const {
    return seen_spans(args.first_position, args.num_tokens, params_.window);
  }

  cpu::AttentionArgs args_of(size_t item, uint32_t thread) const {
    // Later tiles see more keys: they go first, so that no long one is left for the end.
    const size_t number = items_ - 1 - item;
    const auto which = static_cast<size_t>(std::upper_bound(first_item_, first_item_ + seqs_.size(), number) -
                                           first_item_ - 1);
    const AttentionSeq& seq = seqs_[which];
    const uint32_t heads = heads_of(seq, heads_of_few_);
    const uint32_t items_of_tile = layout_.num_kv_heads / heads;
    const auto of_seq = static_cast<uint32_t>(number - first_item_[which]);
    const uint32_t kv_head = of_seq % items_of_tile * heads;
    const uint32_t token = of_seq / items_of_tile * tokens_per_tile_;
    const size_t row = size_t{seq.first_row} + token;
    const size_t head_offset = size_t{kv_head} * group_ * layout_.head_dim;
    return {.cache = cache_,
            .block_table = seq.block_table.data(),
            .block_bytes = layout_.block_bytes(),
            .block_size = layout_.block_size,
            .num_kv_heads = layout_.num_kv_heads,
            .head_dim = layout_.head_dim,
            .kv_head = kv_head,
            .num_heads = heads,
            .group = group_,
            .num_tokens = std::min(tokens_per_tile_, seq.num_rows - token),
            .first_position = seq.first_position + token,
            .window = params_.window,
            .scale = params_.scale,
            .soft_cap = params_.soft_cap,
            .q = q_ + row * ldq_ + head_offset,
            .ldq = ldq_,
            .out = out_ + row * ldo_ + head_offset,
            .ldo = ldo_,
            .padded_dim = padded_dim_,
            .scratch = reinterpret_cast<float*>(threads_ + thread * thread_bytes_)};
  }

  void attend(const cpu::AttentionArgs& args) const {
    kernels_.attention[cpu::kv_index(layout_.dtype)](args);
  }

  /// The `number`-th of the spans that the item sees, if there are so many. Who computes an item's last one
  /// merges them, so that nobody waits for all items.
  void attend_span(size_t item, size_t number, uint32_t thread) const {
    cpu::AttentionArgs args = args_of(item, thread);
    const Spans spans = spans_of(args);
    if (number >= spans.count) return;
    float* partials = partials_ + item * spans_ * span_floats_;
    args.span = spans.first + static_cast<uint32_t>(number);
    const size_t rows = size_t{args.num_heads} * args.num_tokens * group_;
    args.partials = partials + number * rows * cpu::partial_floats(padded_dim_);
    attend(args);
    if (std::atomic_ref(missing_[item]).fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    args.partials = nullptr;
    kernels_.merge_spans(args, partials, spans.count);
  }

  template <class Body>
  void for_each(size_t count, const Body& body) const {
    pool_.parallel_for(count, 1, [&](size_t begin, size_t end, uint32_t thread) {
      for (size_t i = begin; i < end; ++i) body(i, thread);
    });
  }

  ThreadPool& pool_;
  const cpu::KernelTable& kernels_;
  const KvLayout& layout_;
  const std::byte* cache_;
  std::span<const AttentionSeq> seqs_;
  const AttentionParams& params_;
  const float* q_;
  size_t ldq_;
  float* out_;
  size_t ldo_;
  uint32_t group_;
  uint32_t tokens_per_tile_;
  uint32_t heads_of_few_;  // K/V heads that are computed together where a sequence has few rows
  size_t padded_dim_;
  size_t span_floats_ = 0;   // of an item's partials, for one span
  size_t thread_bytes_ = 0;  // of a thread's scratch memory
  size_t items_ = 0;
  size_t spans_ = 1;  // that are shared, of the item that has most
  size_t* first_item_ = nullptr;
  std::byte* threads_ = nullptr;
  uint32_t* missing_ = nullptr;  // spans of each item that are not computed yet, if they are shared
  float* partials_ = nullptr;
};

}  // namespace

void write_kv(KernelContext& context, const KvLayout& layout, std::byte* cache,
              std::span<const AttentionSeq> seqs, const float* k, size_t ldk, const float* v, size_t ldv) {
  const cpu::KernelTable& kernels = cpu::table(context.isa);
  const size_t block_bytes = layout.block_bytes();
  size_t tokens = 0;
  for (const AttentionSeq& seq : seqs) tokens += seq.num_rows;
  const size_t width = size_t{layout.num_kv_heads} * layout.head_dim;
  const size_t grain = cpu::balanced_grain(context.pool, tokens, 8192 / (width + 1) + 1);
  context.pool.parallel_for(tokens, grain, [&](size_t begin, size_t end, uint32_t) {
    for_tokens(seqs, begin, end, [&](const AttentionSeq& seq, uint32_t token) {
      const uint32_t position = seq.first_position + token;
      std::byte* block = cache + seq.block_table[position / layout.block_size] * block_bytes;
      const size_t row = size_t{seq.first_row} + token;
      write_token(kernels, layout, block, position % layout.block_size, k + row * ldk, v + row * ldv);
    });
  });
}

void paged_attention(KernelContext& context, const KvLayout& layout, const std::byte* cache,
                     std::span<const AttentionSeq> seqs, const AttentionParams& params, const float* q,
                     size_t ldq, float* out, size_t ldo) {
  AttentionPass(context, layout, cache, seqs, params, q, ldq, out, ldo).run();
}

}  // namespace quire::kernels
