#include "backend/cuda/device.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/sample_best.h"
#include "backend/cuda/sample_block.h"
#include "backend/cuda/sample_logits.h"
#include "backend/cuda/sample_math.h"
#include "base/rng.h"

namespace quire::backend::cuda {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();

uint32_t num_spans(uint32_t vocabulary) { return (vocabulary + kSpan - 1) / kSpan; }

/// Where a row's part of the workspace has what.
struct Workspace {
  float* changed;  // the logits after lists and masks
  LogitView view;
};

__device__ Workspace workspace_of(const SampleArgs& args, size_t row_bytes) {
  const uint32_t spans = (args.vocabulary + kSpan - 1) / kSpan;
  auto* at = static_cast<unsigned char*>(args.workspace) + args.rows[block_x()].workspace * row_bytes;
  Workspace out{};
  out.view.vocabulary = args.vocabulary;
  out.view.spans = spans;
  out.view.entries = reinterpret_cast<uint64_t*>(at);
  out.view.spare = out.view.entries + size_t{spans} * kSpan;
  out.changed = reinterpret_cast<float*>(out.view.spare + size_t{spans} * kSpan);
  out.view.maxima = out.changed + size_t{spans} * kSpan;
  return out;
}

/// The first id whose logit is not finite. There is one.
__device__ uint32_t first_not_finite(const float* logits, uint32_t vocabulary, const SampleShared& shared) {
  uint32_t id = thread_x();
  while (id < vocabulary && is_finite(logits[id])) id += shared.threads;
  return ~reduce_max(~id, shared);
}

__device__ float penalised(float logit, uint32_t in_output, const SampleRow& row) {
  float x = logit > 0.0F ? logit / row.repetition_penalty : ptx::product(logit, row.repetition_penalty);
  if (in_output > 0) {
    x -= ptx::product(row.frequency_penalty, static_cast<float>(in_output));
    x -= row.presence_penalty;
  }
  return clamp_to_finite(x);
}

/// The row's late token, the newest being 0; -1 if there is none or it could not be sampled.
__device__ __forceinline__ TokenId late_token(const SampleArgs& args, const SampleRow& row, uint32_t which) {
  return which < row.num_late ? args.tokens[row.late_places[which]] : -1;
}

__device__ uint32_t times_late(const SampleArgs& args, const SampleRow& row, TokenId id) {
  uint32_t times = 0;
  for (uint32_t i = 0; i < row.num_late; ++i) times += late_token(args, row, i) == id ? 1 : 0;
  return times;
}

__device__ bool is_counted(const SampleArgs& args, ListPart counts, TokenId id) {
  const CountedToken* first = args.counts + counts.first;
  uint32_t begin = 0;
  for (uint32_t end = counts.count; begin < end;) {
    const uint32_t middle = (begin + end) / 2;
    if (first[middle].id < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < counts.count && first[begin].id == id;
}

/// Penalties of late tokens that the counts lack. By one thread.
__device__ void penalise_late(float* logits, const SampleArgs& args, const SampleRow& row) {
  for (uint32_t i = 0; i < row.num_late; ++i) {
    const TokenId id = late_token(args, row, i);
    bool is_first = id >= 0;
    for (uint32_t j = 0; j < i; ++j) is_first = is_first && late_token(args, row, j) != id;
    if (!is_first || is_counted(args, row.counts, id)) continue;
    logits[id] = penalised(logits[id], times_late(args, row, id), row);
  }
}

__device__ bool is_forbidden(const ForbiddenToken& one, const SampleArgs& args, const SampleRow& row) {
  for (uint32_t i = 0; i < kMostLateTokens; ++i) {
    if (one.after[i] != kAnyToken && one.after[i] != late_token(args, row, i)) return false;
  }
  return true;
}

/// Bias, penalties, forbidden tokens, in this order; no list has a token twice but the last.
__device__ void apply_lists(float* logits, const SampleArgs& args, const SampleRow& row, uint32_t threads) {
  for (uint32_t i = thread_x(); i < row.biases.count; i += threads) {
    const BiasedToken& one = args.biases[row.biases.first + i];
    logits[one.id] = clamp_to_finite(logits[one.id] + one.bias);
  }
  sync_block();
  for (uint32_t i = thread_x(); i < row.counts.count; i += threads) {
    const CountedToken& one = args.counts[row.counts.first + i];
    logits[one.id] = penalised(logits[one.id], one.in_output + times_late(args, row, one.id), row);
  }
  sync_block();
  if (thread_x() == 0) {
    if (row.counts.count > 0) penalise_late(logits, args, row);
    for (uint32_t i = 0; i < row.forbidden.count; ++i) {
      const ForbiddenToken& one = args.forbidden[row.forbidden.first + i];
      if (is_forbidden(one, args, row)) logits[one.id] = kForbiddenLogit;
    }
  }
  sync_block();
}

/// By number; kNoMask permits all.
struct Masks {
  uint32_t first;
  uint32_t second;
};

/// The bits of the tokens from `id` on, a multiple of 4.
__device__ __forceinline__ uint32_t permitted_from(const SampleArgs& args, const Masks& masks, uint32_t id) {
  const size_t words = (args.vocabulary + 31) / 32;
  uint32_t bits = UINT32_MAX;
  if (masks.first != kNoMask) bits &= args.masks[masks.first * words + id / 32];
  if (masks.second != kNoMask) bits &= args.masks[masks.second * words + id / 32];
  return bits >> id % 32;
}

/// Forbids what a mask does in a thread's part of a span, and returns its maximum.
__device__ __forceinline__ float mask_part(PartOfSpan& part, uint32_t first_id, const Masks& masks,
                                           const SampleArgs& args) {
  float max = kForbiddenLogit;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kPiecesOfThread; ++i) {
    const uint32_t id = first_id + place_in_span(i);
    const uint32_t permitted = id < args.vocabulary ? permitted_from(args, masks, id) : UINT32_MAX;
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kPiece<float>; ++j) {
      if ((permitted >> j & 1U) == 0) part.at[i].at[j] = kForbiddenLogit;
      max = larger(max, part.at[i].at[j]);
    }
  }
  return max;
}

/// 0 unless a value of a thread's part of a span is not finite. What is behind the end of the row does not
/// count.
__device__ __forceinline__ float products_with_0(const PartOfSpan& part, uint32_t span, uint32_t vocabulary) {
  float sum = 0.0F;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kPiecesOfThread; ++i) {
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kPiece<float>; ++j) {
      const bool counts = is_whole(span, vocabulary) || span * kSpan + place_in_span(i) + j < vocabulary;
      sum = ptx::fused(counts ? part.at[i].at[j] : 0.0F, 0.0F, sum);
    }
  }
  return sum;
}

/// What look_through() does.
struct Look {
  const float* from;
  float* to;
  Masks masks;
};

/// Looks through a thread's part of a span. Returns the maximum of what is left of the span.
__device__ __forceinline__ float look_at(PartOfSpan& part, uint32_t span, const Look& look,
                                         const SampleArgs& args, const LogitView& view) {
  float max = mask_part(part, span * kSpan, look.masks, args);
  for (uint32_t distance = 1; distance < kTeam; distance *= 2) {
    max = larger(max, shuffle_xor(kWholeWarp, max, distance));
  }
  if (span >= view.spans) return max;
  if (thread_x() % kTeam == 0) view.maxima[span] = max;
  QUIRE_UNROLL
  for (uint32_t i = 0; look.to != nullptr && i < kPiecesOfThread; ++i) {
    ptx::store_128(look.to + span * kSpan + place_in_span(i), pack<float>(part.at[i]));
  }
  return max;
}

/// Copies a row to `to`, unless that is null, without what the masks forbid, and finds the maxima of the
/// copy. Returns whether all values of the row are finite; of a row that is changed in place it says nothing,
/// but that they are.
__device__ bool look_through(const Look& look, const SampleArgs& args, LogitView& view,
                             const SampleShared& shared) {
  constexpr uint32_t kAtOnce = 2;  // so that 8 loads of a thread are on their way
  float max = kForbiddenLogit;
  float products = 0.0F;
  const uint32_t team = thread_x() / kTeam;
  for (uint32_t first = 0; first < view.spans; first += kAtOnce * teams_of(shared)) {
    PartOfSpan parts[kAtOnce];
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      parts[i] = load_part(look.from, first + team + i * teams_of(shared), view.vocabulary);
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const uint32_t span = first + team + i * teams_of(shared);
      products += products_with_0(parts[i], span, view.vocabulary);
      max = larger(max, look_at(parts[i], span, look, args, view));
    }
  }
  const bool is_finite = products == 0.0F || look.from == look.to;
  const uint32_t bits = reduce_max(is_finite ? ordered_bits(max) : UINT32_MAX, shared);
  view.max = number_of_ordered(bits);
  return bits != UINT32_MAX;
}

__device__ __forceinline__ const float* weights_of(const LogitView& view) {
  return reinterpret_cast<const float*>(view.spare);
}

/// Of the first `count` entries.
__device__ void weigh_entries(const LogitView& view, uint32_t count, float temperature, uint32_t threads) {
  auto* weights = reinterpret_cast<float*>(view.spare);
  for (uint32_t i = thread_x(); i < count; i += threads) {
    weights[i] = weight_of(view, value_of(view.entries[i]), temperature);
  }
  sync_block();
}

// The four below are of one thread.

/// Calls stops(weight) for the entries place(0), place(1) and so on until it returns true: of these numbers
/// the one for which it does, or `count`. Some weights are read before the first of them is looked at.
template <class Place, class Stops>
__device__ __forceinline__ uint32_t count_weights(const LogitView& view, uint32_t count, const Place& place,
                                                  const Stops& stops) {
  constexpr uint32_t kAtOnce = 8;
  for (uint32_t first = 0; first < count; first += kAtOnce) {
    float weights[kAtOnce];
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      weights[i] = weights_of(view)[place(first + i < count ? first + i : count - 1)];
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i == count || stops(static_cast<double>(weights[i]))) return first + i;
    }
  }
  return count;
}

__device__ double sum_entries(const LogitView& view, uint32_t count) {
  double sum = 0.0;
  const auto add = [&](double weight) {
    sum += weight;
    return false;
  };
  count_weights(
      view, count, [](uint32_t i) { return i; }, add);
  return sum;
}

/// From all entries, in the order of ids.
__device__ uint32_t draw_of_all(const LogitView& view, uint32_t count, double uniform) {
  const double target = uniform * sum_entries(view, count);
  double sum = 0.0;
  const auto exceeds = [&](double weight) { return (sum += weight) > target; };
  const uint32_t found = count_weights(
      view, count, [](uint32_t i) { return i; }, exceeds);
  return id_of(view.entries[found < count ? found : count - 1]);
}

/// From the best entries whose weights reach `wanted`, the worst of them first; all are sorted.
__device__ uint32_t draw_of_best(const LogitView& view, uint32_t count, double wanted, double uniform) {
  double mass = 0.0;
  const auto reached = [&](double weight) {
    if (mass >= wanted && mass != 0.0) return true;
    mass += weight;
    return false;
  };
  const uint32_t kept = count_weights(
      view, count, [](uint32_t i) { return i; }, reached);
  const double target = uniform * mass;
  double sum = 0.0;
  const auto exceeds = [&](double weight) { return (sum += weight) > target; };
  const uint32_t found = count_weights(
      view, kept, [&](uint32_t i) { return kept - 1 - i; }, exceeds);
  return id_of(view.entries[found < kept ? kept - 1 - found : 0]);
}

/// As SequenceSampler::draw.
__device__ TokenId draw(const LogitView& view, const SampleRow& row, const SampleShared& shared) {
  const double uniform = unit_interval(keyed_random(row.seed, row.choice, row.position));
  const float temperature = row.temperature;
  const auto top_k = static_cast<uint32_t>(row.top_k);
  const bool has_top_k = row.top_k > 0 && top_k < view.vocabulary;
  const bool has_min_p = row.min_p_reach > kForbiddenLogit;
  const bool is_first = thread_x() == 0;
  float least = kLowest;
  if (has_top_k) {
    const uint32_t found = collect_best(view, top_k, shared);
    if (found >= top_k) least = larger(least, value_of(view.entries[top_k - 1]));
    sync_block();
  }
  if (has_min_p) least = larger(least, view.max + row.min_p_reach);
  double mass = 0.0;
  if (!has_top_k && !has_min_p) {
    mass = sum_weights(view, temperature, shared);
    if (row.top_p >= 1.0F) return find_in_sums(view, temperature, uniform * mass, shared);
    // Only what top-p cannot reach is below it, whatever the last bits of the logarithm.
    const double bound = (1.0 - static_cast<double>(row.top_p)) * mass / view.vocabulary;
    least = larger(least, view.max + temperature * (static_cast<float>(std::log(bound)) - 0.01F));
  }
  const uint32_t count = collect(view, least, shared);
  weigh_entries(view, count, temperature, shared.threads);
  uint64_t token = 0;
  if (row.top_p < 1.0F) {
    if (has_top_k || has_min_p) mass = of_first_thread(is_first ? sum_entries(view, count) : 0.0, shared);
    sort_entries(view.entries, view.spare, count, shared);
    weigh_entries(view, count, temperature, shared.threads);
    const double wanted = static_cast<double>(row.top_p) * mass;
    if (is_first) token = draw_of_best(view, count, wanted, uniform);
  } else if (is_first) {
    token = draw_of_all(view, count, uniform);
  }
  return static_cast<TokenId>(of_first_thread(token, shared));
}

/// The logprob and rank of a token, the best ones, and the logprobs that the row names.
__device__ void rate(const LogitView& view, const SampleArgs& args, TokenId token,
                     const SampleShared& shared) {
  const SampleRow& row = args.rows[block_x()];
  SampledRow& out = args.results[block_x()];
  const double log_sum = std::log(sum_weights(view, 1.0F, shared));
  const auto logprob = [&](float value) {
    return static_cast<float>(static_cast<double>(value) - static_cast<double>(view.max) - log_sum);
  };
  const uint32_t rank = num_better(view, token, shared) + 1;
  const auto wanted = static_cast<uint32_t>(row.num_logprobs);
  const uint32_t found = wanted > 0 ? collect_best(view, wanted, shared) : 0;
  const uint32_t count = found < wanted ? found : wanted;
  if (thread_x() < count) {
    const uint64_t entry = view.entries[thread_x()];
    out.top[thread_x()] = {static_cast<TokenId>(id_of(entry)), logprob(value_of(entry))};
  }
  for (uint32_t i = thread_x(); i < row.rated.count; i += shared.threads) {
    const uint32_t at = row.rated.first + i;
    args.rated_logprobs[at] = logprob(view.values[args.rated[at]]);
  }
  if (thread_x() != 0) return;
  out.logprob = logprob(view.values[token]);
  out.rank = rank;
  out.num_top = count;
}

__device__ void put(const SampleArgs& args, SampleStatus status, TokenId token, float logprob) {
  if (thread_x() != 0) return;
  SampledRow& out = args.results[block_x()];
  out.status = status;
  out.token = token;
  out.logprob = logprob;
  out.rank = 0;
  out.num_top = 0;
  args.tokens[args.rows[block_x()].place] = status == SampleStatus::kToken ? token : -1;
}

__device__ __forceinline__ bool has_lists(const SampleRow& row) {
  return row.biases.count + row.counts.count + row.forbidden.count > 0;
}

/// Makes the view that of the row after lists and masks. Returns whether it has a token; if it has none, the
/// result says so.
__device__ bool prepare(const SampleArgs& args, const SampleRow& row, const float* logits, float* changed,
                        LogitView& view, const SampleShared& shared) {
  const bool is_changed = has_lists(row) || row.mask != kNoMask || row.allowed != kNoMask;
  view.values = is_changed ? changed : logits;
  const bool has_masks_now = !has_lists(row);  // they come after the lists
  const Masks now{has_masks_now ? row.mask : kNoMask, has_masks_now ? row.allowed : kNoMask};
  if (!look_through({logits, is_changed ? changed : nullptr, now}, args, view, shared)) {
    const uint32_t bad = first_not_finite(logits, args.vocabulary, shared);
    put(args, SampleStatus::kNotFinite, static_cast<TokenId>(bad), logits[bad]);
    return false;
  }
  if (has_lists(row)) {
    apply_lists(changed, args, row, shared.threads);
    look_through({changed, changed, {row.mask, row.allowed}}, args, view, shared);
  }
  if (view.max != kForbiddenLogit) return true;
  put(args, SampleStatus::kNoToken, 0, 0.0F);
  return false;
}

__global__ void __launch_bounds__(kMostThreads, 1)
    sample_kernel(SampleArgs args, size_t row_bytes, uint32_t threads) {
  let_next_begin();
  wait_for_earlier();
  auto* few = shared_memory<uint64_t>();
  auto* slots = reinterpret_cast<uint32_t*>(few + threads);
  auto* sums = reinterpret_cast<double*>(slots + kWarp);
  const SampleShared shared{threads, few, slots, sums, reinterpret_cast<uint32_t*>(sums)};
  const SampleRow& row = args.rows[block_x()];
  if (takes_best(row)) return;
  const float* logits = args.logits + size_t{row.logits} * args.stride;
  Workspace workspace = workspace_of(args, row_bytes);
  LogitView& view = workspace.view;
  if (!prepare(args, row, logits, workspace.changed, view, shared)) return;
  const TokenId token = row.temperature == 0.0F ? arg_max(view, shared) : draw(view, row, shared);
  put(args, SampleStatus::kToken, token, 0.0F);
  if (row.num_logprobs < 0) return;
  if (has_lists(row) || row.allowed != kNoMask) {
    // They are of the model's own logits, or of those that the mask permits.
    float* const masked = row.mask != kNoMask ? workspace.changed : nullptr;
    view.values = masked != nullptr ? masked : logits;
    look_through({logits, masked, {row.mask, kNoMask}}, args, view, shared);
  }
  rate(view, args, token, shared);
}

}  // namespace

LaunchError sample(const SampleArgs& args, Stream stream) {
  if (args.vocabulary == 0 || args.vocabulary > kMostSampledVocabulary) return 1;
  if (args.num_best > 0) {
    if (const LaunchError error = sample_best(args, stream); error != 0) return error;
  }
  if (args.num_best == args.num_rows) return 0;
  constexpr size_t kCounts = kCountWords * sizeof(uint32_t);
  const uint32_t threads = threads_of_row(args.vocabulary);
  const size_t sums = num_spans(args.vocabulary) * sizeof(double);
  const size_t fixed = threads * sizeof(uint64_t) + kWarp * sizeof(uint32_t);
  const auto shared_bytes = static_cast<uint32_t>(fixed + (sums > kCounts ? sums : kCounts));
  return launch("sample", {{args.num_rows}, threads, shared_bytes, stream, Begins::kEarly}, sample_kernel,
                args, sample_workspace_bytes(args.vocabulary), threads);
}

}  // namespace quire::backend::cuda
