#include "backend/cuda/activate.h"
#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/few_rows.h"
#include "backend/cuda/ptx_mma.h"
#include "backend/cuda/rotation.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 32;
static_assert(kThreads == kWarp);
/// Of a block: a warp's product has 16 of them, which are its rows. A lane has sums of one column of each
/// half.
constexpr uint32_t kColumns = 16;
constexpr uint32_t kHalf = kColumns / 2;
/// A stage is so much of k, as long as 16 products that wait for each other: longer than all else of a stage.
constexpr uint32_t kStageK = 256;
/// Fragments of so much of k are loaded at once, and so many times before they are multiplied.
constexpr uint32_t kStepK = 32;
constexpr uint32_t kSteps = kStageK / kStepK;
constexpr uint32_t kAhead = 3;
constexpr uint32_t kFragments = kAhead + 1;
static_assert(kSteps % kFragments == 0);

/// Rows in shared memory, without gaps. Piece p of row r lies where piece p ^ (r % 8) would: so the pieces of
/// eight rows that are loaded at once are in different banks, and a sector that is copied comes to a sector.
/// (Rows a piece longer, as tiles of K and V have, bring copies across sectors: the head of Llama-3.2-1B took
/// 144 µs on an H200 so, of eight rows 181, where 124 are a copy's rate.)
constexpr uint32_t kRowBytes = kStageK * 2;
static_assert(kRowBytes == kWarp * 16);  // a warp copies a row at once
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t piece) {
  return row * kRowBytes + (piece ^ row % 8) * 16;
}

/// Stages of weights and x; tools/check_cuda.py reads these numbers in the names of kernels. While a stage is
/// multiplied, the others are on their way, of which only the weights count here.
template <uint32_t kStages_, uint32_t kSharedBytes_, uint32_t kBytesInFlight_>
struct Ring {
  static constexpr uint32_t kStages = kStages_;
  static constexpr uint32_t kSharedBytes = kSharedBytes_;
  static constexpr uint32_t kStageBytes = kSharedBytes / kStages;
};
template <uint32_t kRows, uint32_t kStages>
using RingFor = Ring<kStages, kStages*(kColumns + kRows) * kRowBytes, (kStages - 1) * kColumns * kStageK * 2>;

/// What becomes of the product.
enum class Then : uint8_t { kNothing, kGates, kRope };

/// What a block multiplies of a head that is rotated, or of values.
struct RotatedColumns {
  uint32_t head;
  uint32_t first;   // the head's first column
  uint32_t rotary;  // of this head
  uint32_t i;       // where the block's stretch lies in half a head
  Pair pair;

  __device__ __forceinline__ explicit RotatedColumns(const RopeArgs& args) {
    const uint32_t head_dim = args.blocks.head_dim;
    const uint32_t of_head = head_dim / kColumns;
    head = block_x() / of_head;
    first = head * head_dim;
    rotary = is_value(args, head) ? 0 : args.rotary;
    i = block_x() % of_head * kHalf;
    pair = pair_of(i, rotary, head_dim);
  }
};

template <class T>
struct Args {
  const T* x;
  const T* weights;
  const T* bias;
  void* y;
  uint32_t rows;
  uint32_t n;
  uint32_t k;
  Then then;
  model::Activation activation;  // of gates
  RopeArgs rope;
};

/// The columns of a block's halves, by the first of each. Where gates multiply the others, one half is gates
/// and the other what they multiply; where pairs are rotated, a half has the first of each: so a lane has
/// both.
struct Halves {
  uint32_t low;
  uint32_t high;
};
template <class T>
__device__ __forceinline__ Halves halves_of(const Args<T>& args) {
  if (args.then == Then::kGates) return {block_x() * kHalf, args.n / 2 + block_x() * kHalf};
  if (args.then == Then::kNothing) return {block_x() * kColumns, block_x() * kColumns + kHalf};
  const RotatedColumns columns(args.rope);
  return {columns.first + columns.pair.low, columns.first + columns.pair.high};
}

/// How a warp copies stages of a matrix of kRows rows, in order.
template <class T>
struct Copies {
  const T* from;  // the lane's piece of the first row of the next stage
  uint32_t rows;  // that there are; behind them, rows are copies of the last
  uint32_t k;

  __device__ __forceinline__ Copies(const T* matrix, uint32_t num_rows, uint32_t width)
      : from(matrix + thread_x() * kPiece<T>), rows(num_rows), k(width) {}

  /// `at`: where the stage goes to.
  __device__ __forceinline__ void begin(unsigned char* at, uint32_t row) const {
    const uint32_t there = row < rows ? row : rows - 1;
    copy_async(at + swizzled(row, thread_x()), from + size_t{there} * k, 16);
  }
  __device__ __forceinline__ void next() { from += kStageK; }
};

/// The same of the block's columns.
template <class T>
struct WeightCopies {
  Copies<T> low;
  Copies<T> high;

  __device__ __forceinline__ WeightCopies(const Args<T>& args, const Halves& columns)
      : low(half_of(args, columns.low)), high(half_of(args, columns.high)) {}
  __device__ __forceinline__ void begin(unsigned char* at, uint32_t row) const {
    if (row < kHalf) {
      low.begin(at, row);
    } else {
      high.begin(at + kHalf * kRowBytes, row - kHalf);
    }
  }
  __device__ __forceinline__ void next() {
    low.next();
    high.next();
  }

 private:
  __device__ __forceinline__ static Copies<T> half_of(const Args<T>& args, uint32_t first) {
    return {args.weights + size_t{first} * args.k, kHalf, args.k};
  }
};

/// What the lanes of a warp hold of weights and x.
struct Fragments {
  ptx::Matrices weights[2];
  ptx::Matrices x;
};

/// Where a lane loads its share from.
template <uint32_t kRows>
struct Places {
  uint32_t row;     // of eight
  uint32_t matrix;  // of four

  __device__ __forceinline__ Places() : row(thread_x() % 8), matrix(thread_x() / 8) {}

  __device__ __forceinline__ void load(Fragments& to, const unsigned char* stage, uint32_t step) const {
    constexpr uint32_t kPieces = kStepK * 2 / 16;
    const uint32_t column = matrix % 2 * 8 + row;
    QUIRE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t piece = step * kPieces + half * 2 + matrix / 2;
      to.weights[half] = ptx::load_matrices<false>(stage + swizzled(column, piece));
    }
    to.x = ptx::load_matrices<false>(stage + kColumns * kRowBytes +
                                     swizzled(row % kRows, step * kPieces + matrix));
  }
};

/// Of the rows of a stage, those that are copied before the step.
constexpr uint32_t share(uint32_t rows, uint32_t step) { return rows * step / kSteps; }

template <class T>
__device__ __forceinline__ void multiply(ptx::Accumulator& sums, const Fragments& of) {
  ptx::multiply_add<T>(sums, of.weights[0], of.x.words[0], of.x.words[1]);
  ptx::multiply_add<T>(sums, of.weights[1], of.x.words[2], of.x.words[3]);
}

template <class T, class Out>
__device__ __forceinline__ void store_pair(const Args<T>& args, uint32_t row, uint32_t column, float first,
                                           float second) {
  if (row >= args.rows) return;
  Out* to = static_cast<Out*>(args.y) + size_t{row} * args.n + column;
  if constexpr (sizeof(Out) == 4) {
    ptx::store_64(to, first, second);
  } else {
    *reinterpret_cast<uint32_t*>(to) = pack_pair<T>(first, second);
  }
}

/// A lane has one column of each half of the block's and two rows of y. It swaps with a neighbour, so that it
/// has two columns of one half.
template <class T, class Out>
__device__ __forceinline__ void store(const Args<T>& args, const ptx::Accumulator& sums) {
  constexpr uint32_t kNeighbour = 4;
  const uint32_t lane = thread_x();
  const bool is_low = lane / 4 % 2 == 0;
  const uint32_t column = block_x() * kColumns + lane / 8 * 2 + (is_low ? 0 : 8);
  const float other[] = {shuffle_xor(kWholeWarp, is_low ? sums.at[2] : sums.at[0], kNeighbour),
                         shuffle_xor(kWholeWarp, is_low ? sums.at[3] : sums.at[1], kNeighbour)};
  float bias[] = {0.0F, 0.0F};
  if (args.bias != nullptr) {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(args.bias + column);
    bias[0] = to_float(T{static_cast<uint16_t>(pair)});
    bias[1] = to_float(T{static_cast<uint16_t>(pair >> 16)});
  }
  QUIRE_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    const float first = is_low ? sums.at[r] : other[r];
    const float second = is_low ? other[r] : sums.at[2 + r];
    const bool has_bias = args.bias != nullptr;  // a sum of -0 stays as it is
    store_pair<T, Out>(args, lane % 4 * 2 + r, column, has_bias ? first + bias[0] : first,
                       has_bias ? second + bias[1] : second);
  }
}

/// A column of a row of the product, rounded as if it had been stored.
template <class T>
__device__ __forceinline__ float stored_sum(const Args<T>& args, float sum, uint32_t column) {
  if (args.bias != nullptr) sum += to_float(args.bias[column]);
  return to_float(from_float<T>(sum));
}

/// Of a lane that has a column of two rows, and a neighbour that has the column beside it: both columns of
/// one row, the first of the two in lanes of even columns.
template <class T>
__device__ __forceinline__ uint32_t pair_of_one_row(const float* rows) {
  constexpr uint32_t kNeighbour = 4;
  const bool is_even = thread_x() / 4 % 2 == 0;
  const float other = shuffle_xor(kWholeWarp, is_even ? rows[1] : rows[0], kNeighbour);
  return is_even ? pack_pair<T>(rows[0], other) : pack_pair<T>(other, rows[1]);
}

/// A lane has a gate and what it multiplies, of two rows, and then two results of one row.
template <class T>
__device__ __forceinline__ void store_gated(const Args<T>& args, const ptx::Accumulator& sums) {
  const uint32_t lane = thread_x();
  const uint32_t column = block_x() * kHalf + lane / 4;
  float results[2];
  QUIRE_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    const float gate = stored_sum(args, sums.at[r], column);
    const float up = stored_sum(args, sums.at[2 + r], args.n / 2 + column);
    results[r] = activate(args.activation, gate) * up;
  }
  const uint32_t pair = pair_of_one_row<T>(results);
  const uint32_t row = lane % 4 * 2 + lane / 4 % 2;
  if (row >= args.rows) return;
  T* to = static_cast<T*>(args.y) + size_t{row} * (args.n / 2) + column / 2 * 2;
  *reinterpret_cast<uint32_t*>(to) = pair;
}

/// A lane has both of what is rotated together, of two rows, and then two neighbours of each half of one row.
template <class T>
__device__ __forceinline__ void store_rotated(const Args<T>& args, const ptx::Accumulator& sums) {
  const RotatedColumns columns(args.rope);
  const uint32_t lane = thread_x();
  const uint32_t in_half = lane / 4;
  float low[2];
  float high[2];
  QUIRE_UNROLL
  for (uint32_t r = 0; r < 2; ++r) {
    low[r] = stored_sum(args, sums.at[r], columns.first + columns.pair.low + in_half);
    high[r] = stored_sum(args, sums.at[2 + r], columns.first + columns.pair.high + in_half);
    const uint32_t row = lane % 4 * 2 + r;
    if (row >= args.rows || columns.i >= columns.rotary / 2) continue;
    const float* cosine =
        args.rope.cos_sin + size_t{args.rope.positions[row]} * columns.rotary + columns.i + in_half;
    rotate_pair(low[r], high[r], cosine[0], cosine[columns.rotary / 2]);
  }
  const uint32_t low_pair = pair_of_one_row<T>(low);
  const uint32_t high_pair = pair_of_one_row<T>(high);
  const uint32_t row = lane % 4 * 2 + lane / 4 % 2;
  if (row >= args.rows) return;
  T* to = place_of<T>(args.rope, row, columns.head) + in_half / 2 * 2;
  *reinterpret_cast<uint32_t*>(to + columns.pair.low) = low_pair;
  *reinterpret_cast<uint32_t*>(to + columns.pair.high) = high_pair;
}

/// A warp sums 16 columns in the order of k. Its weights begin to come before the kernel waits for those
/// before it, as many as the ring holds.
template <class T, class Out, uint32_t kRows, class Ring>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(Args<T> args) {
  constexpr uint32_t kStages = Ring::kStages;
  constexpr uint32_t kBytes = Ring::kStageBytes;
  constexpr uint32_t kXAt = kColumns * kRowBytes;
  unsigned char* memory = shared_memory<unsigned char>();
  const uint32_t stages = args.k / kStageK;
  WeightCopies<T> weights(args, halves_of(args));
  Copies<T> x(args.x, args.rows, args.k);
  let_next_begin();
  QUIRE_UNROLL
  for (uint32_t stage = 0; stage < kStages - 1; ++stage) {
    if (stage >= stages) break;
    QUIRE_UNROLL
    for (uint32_t row = 0; row < kColumns; ++row) weights.begin(memory + stage * kBytes, row);
    weights.next();
  }
  wait_for_earlier();
  QUIRE_UNROLL
  for (uint32_t stage = 0; stage < kStages - 1; ++stage) {
    if (stage < stages) {
      QUIRE_UNROLL
      for (uint32_t row = 0; row < kRows; ++row) x.begin(memory + stage * kBytes + kXAt, row);
      x.next();
    }
    commit_copies();
  }

  const Places<kRows> places;
  Fragments fragments[kFragments];
  wait_for_copies(kStages - 2);
  sync_warp(kWholeWarp);
  QUIRE_UNROLL
  for (uint32_t step = 0; step < kAhead; ++step) places.load(fragments[step], memory, step);
  ptx::Accumulator sums{};
  unsigned char* now = memory;
  unsigned char* free = memory + (kStages - 1) * kBytes;  // multiplied, or never used
  QUIRE_KEEP_LOOP
  for (uint32_t stage = 0; stage < stages; ++stage) {
    const bool fills = stage + kStages - 1 < stages;
    const bool is_last = stage + 1 == stages;
    unsigned char* next = now == memory + (kStages - 1) * kBytes ? memory : now + kBytes;
    QUIRE_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (step == kSteps - kAhead) {
        wait_for_copies(kStages - 3);
        sync_warp(kWholeWarp);  // and what is loaded from `now` is loaded by all lanes
      }
      Fragments& ahead = fragments[(step + kAhead) % kFragments];
      if (step < kSteps - kAhead) {
        places.load(ahead, now, step + kAhead);
      } else if (!is_last) {
        places.load(ahead, next, step + kAhead - kSteps);
      }
      if (fills) {
        QUIRE_UNROLL
        for (uint32_t row = share(kColumns, step); row < share(kColumns, step + 1); ++row) {
          weights.begin(free, row);
        }
        QUIRE_UNROLL
        for (uint32_t row = share(kRows, step); row < share(kRows, step + 1); ++row)
          x.begin(free + kXAt, row);
      }
      multiply<T>(sums, fragments[step % kFragments]);
    }
    weights.next();
    x.next();
    commit_copies();
    free = now;
    now = next;
  }
  if constexpr (sizeof(Out) == sizeof(T)) {
    if (args.then == Then::kGates) return store_gated(args, sums);
    if (args.then == Then::kRope) return store_rotated(args, sums);
  }
  store<T, Out>(args, sums);
}

/// How many stages: a long k in few blocks needs all that may be on its way, and elsewhere the next kernel's
/// blocks need the room, the more so where there are several of these blocks for each multiprocessor. (Three
/// for gate and up of Llama-3.2-1B made a step of one row on an H200 30 µs shorter, and one of four rows
/// longer.)
constexpr uint32_t kLeastStages = 3;
constexpr uint32_t kFewStages = 4;
constexpr uint32_t kManyStages = 8;
constexpr uint32_t kLongK = 4096;
constexpr uint32_t kManyColumns = 8192;

template <class T, class Out, uint32_t kRows, uint32_t kStages>
LaunchError launch_with(const FewRowsArgs& args, Stream stream) {
  using Ring = RingFor<kRows, kStages>;
  static_assert(Ring::kSharedBytes <= kMostSharedBytes);
  const LaunchShape shape{{args.n / kColumns}, kThreads, Ring::kSharedBytes, stream, Begins::kEarly};
  const char* name = args.gates ? "few_rows_gated" : args.rope ? "few_rows_rotated" : "few_rows";
  const Then then = args.gates ? Then::kGates : args.rope ? Then::kRope : Then::kNothing;
  return launch(name, shape, few_rows_kernel<T, Out, kRows, Ring>,
                Args<T>{static_cast<const T*>(args.x), static_cast<const T*>(args.weights),
                        static_cast<const T*>(args.bias), args.y, args.rows, args.n, args.k, then,
                        args.gates.value_or(model::Activation::kSilu), args.rope.value_or(RopeArgs{})});
}

template <class T, class Out, uint32_t kStages>
LaunchError launch_for_rows(const FewRowsArgs& args, Stream stream) {
  if (args.rows == 1) return launch_with<T, Out, 1, kStages>(args, stream);
  if (args.rows <= 4) return launch_with<T, Out, 4, kStages>(args, stream);
  return launch_with<T, Out, kFewRows, kStages>(args, stream);
}

template <class T, class Out>
LaunchError launch_for_k(const FewRowsArgs& args, Stream stream) {
  if (args.k >= kLongK) return launch_for_rows<T, Out, kManyStages>(args, stream);
  if (args.rows == 1 && args.n >= kManyColumns) return launch_with<T, Out, 1, kLeastStages>(args, stream);
  return launch_for_rows<T, Out, kFewStages>(args, stream);
}

}  // namespace

bool few_rows_multiplies(DType dtype, DType out_dtype, uint32_t n, uint32_t k) {
  const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;
  return is_half && (out_dtype == dtype || out_dtype == DType::kF32) && n > 0 && n % kColumns == 0 && k > 0 &&
         k % kStageK == 0;
}

LaunchError few_rows(const FewRowsArgs& args, Stream stream) {
  const auto launch_as = [&](auto type) {
    using T = decltype(type);
    if (args.out_dtype == DType::kF32) return launch_for_k<T, float>(args, stream);
    return launch_for_k<T, T>(args, stream);
  };
  return args.dtype == DType::kF16 ? launch_as(F16{}) : launch_as(Bf16{});
}

}  // namespace quire::backend::cuda
