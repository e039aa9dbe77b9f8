#include "tests/levels_anywhere/definitions.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"

namespace quire::test {
namespace {

template <class T>
T get(const std::byte* from, size_t lane) {
  T value;
  std::memcpy(&value, from + lane * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void set(std::byte* to, size_t lane, T value) {
  std::memcpy(to + lane * sizeof(T), &value, sizeof(T));
}
bool bit(uint64_t mask, size_t lane) { return (mask >> lane & 1) != 0; }

template <class T>
constexpr Lanes kLanesOf = std::is_same_v<T, float>    ? Lanes::kF32
                           : std::is_same_v<T, double> ? Lanes::kF64
                                                       : Lanes::kBits;

// Lanes of `From` to as many of `To`, by a function of up to three operands.
template <class From, class To = From, class F>
Definition by_lane(F f, size_t lanes = 64 / std::max(sizeof(From), sizeof(To))) {
  return {kLanesOf<To>, [f, lanes](const ProbeOperands& in, std::byte* to) {
            for (size_t i = 0; i < lanes; ++i) {
              set(to, i, static_cast<To>(f(get<From>(in.a, i), get<From>(in.b, i), get<From>(in.c, i))));
            }
          }};
}

// Lanes of `T`, each by its index.
template <class T, class F>
Definition by_index(F f, size_t lanes = 64 / sizeof(T)) {
  return {kLanesOf<T>, [f, lanes](const ProbeOperands& in, std::byte* to) {
            for (size_t i = 0; i < lanes; ++i) set(to, i, static_cast<T>(f(in, i)));
          }};
}

// A mask of `lanes` bits.
template <class F>
Definition to_mask(F f, size_t lanes) {
  return {Lanes::kBits, [f, lanes](const ProbeOperands& in, std::byte* to) {
            uint64_t mask = 0;
            for (size_t i = 0; i < lanes; ++i) mask |= uint64_t{f(in, i)} << i;
            set(to, 0, mask);
          }};
}

template <class T>
Definition masked_load(size_t lanes, size_t bytes_of_result) {
  Definition load = {Lanes::kBits, [lanes, bytes_of_result](const ProbeOperands& in, std::byte* to) {
                       std::memset(to, 0, bytes_of_result);
                       for (size_t i = 0; i < lanes; ++i) {
                         if (bit(in.mask, i)) set(to, i, get<T>(in.memory, i));
                       }
                     }};
  load.memory_lane = sizeof(T);
  load.memory_lanes = lanes;
  return load;
}
template <class T>
Definition masked_store(size_t lanes) {
  Definition store = {Lanes::kBits, [lanes](const ProbeOperands& in, std::byte*) {
                        for (size_t i = 0; i < lanes; ++i) {
                          if (bit(in.mask, i)) set(in.memory, i, get<T>(in.a, i));
                        }
                      }};
  store.memory_lane = sizeof(T);
  store.memory_lanes = lanes;
  return store;
}

template <class T>
std::function<T(const ProbeOperands&, size_t)> blend() {
  return [](const ProbeOperands& in, size_t i) { return get<T>(bit(in.mask, i) ? in.b : in.a, i); };
}

int32_t to_int(float x) {  // to nearest even; what fits no int is the least
  const double whole = std::nearbyint(double{x});
  return whole >= -0x1p31 && whole < 0x1p31 ? static_cast<int32_t>(whole) : INT32_MIN;
}

int16_t saturated16(int x) { return static_cast<int16_t>(std::clamp(x, -32768, 32767)); }

float scaled(float a, float b) {
  constexpr uint32_t kQuiet = 1U << 22;
  const bool is_quiet = (std::bit_cast<uint32_t>(a) & kQuiet) != 0;
  if (std::isnan(a) && is_quiet && std::isinf(b)) return std::max(b, 0.0F);  // "VSCALEFPS", special cases
  if (std::isnan(a) || std::isnan(b)) return NAN;
  if (std::isinf(b)) return b > 0 ? a * INFINITY : a * 0.0F;
  if (std::isinf(a) || a == 0.0F) return a;
  // In f64, so that only the last conversion rounds.
  return static_cast<float>(
      std::ldexp(double{a}, static_cast<int>(std::clamp(std::floor(b), -600.0F, 600.0F))));
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

/// One rounding; subnormals are zeros. Whether a result is one is decided after rounding as if the exponent
/// had no bound, as x86 does: a product of which the sum is that small is tried with exponents raised by 64.
float flushing_fma(float x, float y, float sum) {
  x = flushed(x);
  y = flushed(y);
  sum = flushed(sum);
  const float result = std::fma(x, y, sum);
  if (std::isnan(result) || std::abs(result) > 2 * FLT_MIN) return result;
  const double product = double{x} * y;  // exact: bf16
  const double exact = product + sum;    // so is this where it is small, or it is far from the bound
  const float raised = static_cast<float>(exact * 0x1p64);
  return std::abs(raised) < FLT_MIN * 0x1p64F ? std::copysign(0.0F, result) : result;
}

float bf16_at(const std::byte* from, size_t index) { return bf16_to_f32(get<uint16_t>(from, index)); }

float dot_bf16(const ProbeOperands& in, size_t i) {
  const float first = flushing_fma(bf16_at(in.a, 2 * i + 1), bf16_at(in.b, 2 * i + 1), get<float>(in.c, i));
  return flushing_fma(bf16_at(in.a, 2 * i), bf16_at(in.b, 2 * i), first);
}

uint32_t dot_bytes(const ProbeOperands& in, size_t i) {
  uint32_t sum = get<uint32_t>(in.c, i);
  for (size_t j = 4 * i; j < 4 * i + 4; ++j) {
    sum += static_cast<uint32_t>(get<uint8_t>(in.a, j) * get<int8_t>(in.b, j));
  }
  return sum;
}

uint32_t dot_pairs(const ProbeOperands& in, size_t i) {
  uint32_t sum = get<uint32_t>(in.c, i);
  for (size_t j = 2 * i; j < 2 * i + 2; ++j) {
    sum += static_cast<uint32_t>(get<int16_t>(in.a, j) * get<int16_t>(in.b, j));
  }
  return sum;
}

struct TileShape {
  size_t rows, inner, columns;
  bool add;  // to the tile, not to zeros
};
TileShape tile_shape(uint64_t mask) {
  return {1 + (mask & 15), 1 + (mask >> 4 & 15), 1 + (mask >> 8 & 15), bit(mask, 12)};
}

template <class T, class Sum>
Definition by_tile(Sum sum) {
  return {kLanesOf<T>, [sum](const ProbeOperands& in, std::byte* to) {
            const TileShape shape = tile_shape(in.mask);
            for (size_t row = 0; row < shape.rows; ++row) {
              for (size_t column = 0; column < shape.columns; ++column) {
                const T before = shape.add ? get<T>(in.c, row * 16 + column) : T{};
                set(to, row * 16 + column, sum(in, shape.inner, row, column, before));
              }
            }
          }};
}
uint32_t tile_of_bytes(const ProbeOperands& in, size_t inner, size_t row, size_t column, uint32_t sum) {
  for (size_t k = 0; k < inner; ++k) {
    for (size_t i = 0; i < 4; ++i) {
      sum += static_cast<uint32_t>(get<int8_t>(in.a, row * 64 + k * 4 + i) *
                                   get<int8_t>(in.b, k * 64 + column * 4 + i));
    }
  }
  return sum;
}
float tile_of_bf16(const ProbeOperands& in, size_t inner, size_t row, size_t column, float before) {
  float sums[2] = {0.0F, 0.0F};  // of the even elements, and of the odd ones
  for (size_t k = 0; k < inner; ++k) {
    for (size_t i = 0; i < 2; ++i) {
      sums[i] =
          flushing_fma(bf16_at(in.a, row * 32 + k * 2 + i), bf16_at(in.b, k * 32 + column * 2 + i), sums[i]);
    }
  }
  return flushing_fma(1.0F, flushing_fma(1.0F, sums[0], sums[1]), before);
}

/// 32-bit lanes of quarters, from two registers by turns.
Definition unpack(size_t bytes, bool high) {
  return {Lanes::kBits, [bytes, high](const ProbeOperands& in, std::byte* to) {
            for (size_t quarter = 0; quarter < 64; quarter += 16) {
              for (size_t i = 0; i < 16 / bytes; ++i) {
                const std::byte* from = (i % 2 == 0 ? in.a : in.b) + quarter + (high ? 8 : 0) + i / 2 * bytes;
                std::memcpy(to + quarter + i * bytes, from, bytes);
              }
            }
          }};
}
Definition shuffle(int control) {
  return {Lanes::kBits, [control](const ProbeOperands& in, std::byte* to) {
            for (size_t i = 0; i < 4; ++i) {
              std::memcpy(to + i * 16, (i < 2 ? in.a : in.b) + (control >> (2 * i) & 3) * 16, 16);
            }
          }};
}
Definition copy(const std::byte (ProbeOperands::*from)[kProbeBytes], size_t begin, size_t bytes) {
  return {Lanes::kBits,
          [=](const ProbeOperands& in, std::byte* to) { std::memcpy(to, in.*from + begin, bytes); }};
}
Definition insert(size_t half) {
  return {Lanes::kBits, [half](const ProbeOperands& in, std::byte* to) {
            std::memcpy(to, in.a, 64);
            std::memcpy(to + half * 32, in.b, 32);
          }};
}

using Table = std::map<std::string, Definition>;

void add_floats(Table& table) {
  table["_mm512_add_ps"] = by_lane<float>([](float a, float b, float) { return a + b; });
  table["_mm512_sub_ps"] = by_lane<float>([](float a, float b, float) { return a - b; });
  table["_mm512_mul_ps"] = by_lane<float>([](float a, float b, float) { return a * b; });
  table["_mm512_div_ps"] = by_lane<float>([](float a, float b, float) { return a / b; });
  table["_mm512_max_ps"] = by_lane<float>([](float a, float b, float) { return a > b ? a : b; });
  table["_mm512_min_ps"] = by_lane<float>([](float a, float b, float) { return a < b ? a : b; });
  table["_mm512_fmadd_ps"] = by_lane<float>([](float a, float b, float c) { return std::fma(a, b, c); });
  table["_mm512_fnmadd_ps"] = by_lane<float>([](float a, float b, float c) { return std::fma(-a, b, c); });
  table["_mm512_add_pd"] = by_lane<double>([](double a, double b, double) { return a + b; });
  table["_mm512_mul_pd"] = by_lane<double>([](double a, double b, double) { return a * b; });
  table["_mm512_div_pd"] = by_lane<double>([](double a, double b, double) { return a / b; });
  table["_mm512_scalef_ps"] = by_lane<float>([](float a, float b, float) { return scaled(a, b); });
  table["_mm512_roundscale_ps"] = by_lane<float>([](float a, float, float) { return std::nearbyint(a); });
  table["_mm512_cvtepi32_ps"] = by_lane<int32_t, float>([](int32_t a, int32_t, int32_t) { return a; });
  table["_mm512_cvtps_epi32"] = by_lane<float, int32_t>([](float a, float, float) { return to_int(a); });
  table["_mm512_cvtps_pd"] = by_lane<float, double>([](float a, float, float) { return a; });
  table["_mm512_cvtpd_ps"] = by_lane<double, float>([](double a, double, double) { return a; });
  table["_mm512_cvtph_ps"] =
      by_lane<uint16_t, float>([](uint16_t a, uint16_t, uint16_t) { return f16_to_f32(a); });
  table["_mm512_cvtps_ph"] = by_lane<float, uint16_t>([](float a, float, float) { return f32_to_f16(a); });
  table["_mm512_cvtps_ph"].lanes = Lanes::kF16;
  table["_mm512_cmp_ps_mask <"] = to_mask(
      [](const ProbeOperands& in, size_t i) { return get<float>(in.a, i) < get<float>(in.b, i); }, 16);
  table["_mm512_cmp_ps_mask NaN"] =
      to_mask([](const ProbeOperands& in,
                 size_t i) { return std::isunordered(get<float>(in.a, i), get<float>(in.b, i)); },
              16);
  table["_mm512_cvtneps_pbh"] =
      by_lane<float, uint16_t>([](float a, float, float) { return f32_to_bf16(flushed(a)); });
  table["_mm512_cvtne2ps_pbh"] = by_index<uint16_t>([](const ProbeOperands& in, size_t i) {
    return f32_to_bf16(flushed(i < 16 ? get<float>(in.b, i) : get<float>(in.a, i - 16)));
  });
  table["_mm512_dpbf16_ps"] = by_index<float>(dot_bf16);
}

void add_moves(Table& table) {
  for (const char* zero : {"_mm512_setzero_ps", "_mm512_setzero_pd", "_mm512_setzero_si512"}) {
    table[zero] = by_index<uint32_t>([](const ProbeOperands&, size_t) { return 0; });
  }
  for (const char* same :
       {"_mm512_loadu_ps _mm512_storeu_ps", "_mm512_stream_ps", "_mm512_loadu_si512 _mm512_storeu_si512",
        "_mm512_castps_pd _mm512_castpd_ps", "_mm512_castps_si512", "_mm512_castsi512_ps"}) {
    table[same] = copy(&ProbeOperands::a, 0, 64);
  }
  for (const char* first : {"_mm512_set1_ps", "_mm512_cvtss_f32", "_mm512_set1_epi32"}) {
    table[first] = by_index<uint32_t>([](const ProbeOperands& in, size_t) { return get<uint32_t>(in.a, 0); });
  }
  table["_mm512_set1_epi16"] =
      by_index<uint16_t>([](const auto& in, size_t) { return get<uint16_t>(in.a, 0); });
  table["_mm512_set1_epi8"] = by_index<uint8_t>([](const auto& in, size_t) { return get<uint8_t>(in.a, 0); });
  for (const char* lower : {"_mm512_castps512_ps256", "_mm512_castps256_ps512", "_mm512_extractf64x4_pd 0"}) {
    table[lower] = copy(&ProbeOperands::a, 0, 32);
  }
  table["_mm512_extractf64x4_pd 1"] = copy(&ProbeOperands::a, 32, 32);
  table["_mm512_insertf64x4 0"] = insert(0);
  table["_mm512_insertf64x4 1"] = insert(1);
  table["_mm512_broadcast_i32x4"] =
      by_index<uint32_t>([](const ProbeOperands& in, size_t i) { return get<uint32_t>(in.a, i % 4); });
  table["_mm512_shuffle_epi8"] = by_index<uint8_t>([](const ProbeOperands& in, size_t i) {
    const size_t index = get<uint8_t>(in.b, i);
    return index < 128 ? get<uint8_t>(in.a, i / 16 * 16 + index % 16) : 0;
  });
  table["_mm512_permutex2var_ps"] = by_index<uint32_t>([](const ProbeOperands& in, size_t i) {
    const size_t index = get<uint32_t>(in.b, i) % 32;
    return index < 16 ? get<uint32_t>(in.a, index) : get<uint32_t>(in.c, index - 16);
  });
  table["_mm512_unpacklo_epi32"] = unpack(4, false);
  table["_mm512_unpackhi_epi32"] = unpack(4, true);
  table["_mm512_unpacklo_epi64"] = unpack(8, false);
  table["_mm512_unpackhi_epi64"] = unpack(8, true);
  for (const auto& [name, control] :
       {std::pair{"0x44", 0x44}, {"0xee", 0xee}, {"0x88", 0x88}, {"0xdd", 0xdd}, {"0x1e", 0x1e}}) {
    table[std::string("_mm512_shuffle_i32x4 ") + name] = shuffle(control);
  }
}

void add_masked(Table& table) {
  table["_mm512_mask_blend_ps"] = by_index<uint32_t>(blend<uint32_t>());
  table["_mm512_mask_blend_epi32"] = by_index<uint32_t>(blend<uint32_t>());
  table["_mm512_mask_blend_epi16"] = by_index<uint16_t>(blend<uint16_t>());
  table["_mm512_movepi8_mask"] =
      to_mask([](const ProbeOperands& in, size_t i) { return get<int8_t>(in.a, i) < 0; }, 64);
  table["_mm512_mask_sub_epi8"] = by_index<uint8_t>([](const ProbeOperands& in, size_t i) {
    return bit(in.mask, i) ? get<uint8_t>(in.b, i) - get<uint8_t>(in.c, i) : get<uint8_t>(in.a, i);
  });
  table["_mm512_maskz_loadu_ps"] = table["_mm512_maskz_loadu_epi32"] = masked_load<uint32_t>(16, 64);
  table["_mm512_maskz_loadu_epi16"] = masked_load<uint16_t>(32, 64);
  table["_mm512_maskz_loadu_epi16 odd"] = by_index<uint16_t>(
      [](const ProbeOperands& in, size_t i) { return i % 2 == 1 ? get<uint16_t>(in.a, i) : 0; });
  table["_mm256_maskz_loadu_epi16"] = masked_load<uint16_t>(16, 32);
  table["_mm_maskz_loadu_epi8"] = masked_load<uint8_t>(16, 16);
  table["_mm512_mask_storeu_ps"] = table["_mm512_mask_storeu_epi32"] = masked_store<uint32_t>(16);
  table["_mm256_mask_storeu_epi16"] = masked_store<uint16_t>(16);
}

void add_bits(Table& table) {
  using U = uint32_t;
  table["_mm512_and_ps"] = table["_mm512_and_si512"] = by_lane<U>([](U a, U b, U) { return a & b; });
  table["_mm512_or_ps"] = table["_mm512_or_si512"] = by_lane<U>([](U a, U b, U) { return a | b; });
  for (const auto& [name, count] : {std::pair{" 0", 0}, {" 7", 7}, {" 16", 16}}) {
    using std::string;
    const int by = count;  // a lane is zero when all its bits are out
    table[string("_mm512_slli_epi32") + name] = by_lane<U>([by](U a, U, U) { return a << by; });
    table[string("_mm512_srli_epi32") + name] = by_lane<U>([by](U a, U, U) { return a >> by; });
    table[string("_mm512_srai_epi32") + name] =
        by_lane<int32_t>([by](int32_t a, int, int) { return a >> by; });
    table[string("_mm512_srli_epi16") + name] = by_lane<uint16_t>([by](U a, U, U) { return a >> by; });
  }
  // Exclusive or, then and; a choice by the bits of the first; and, then or.
  table["_mm512_ternarylogic_epi32 0x28"] = by_lane<U>([](U a, U b, U c) { return (a ^ b) & c; });
  table["_mm512_ternarylogic_epi32 0xca"] = by_lane<U>([](U a, U b, U c) { return (a & b) | (~a & c); });
  table["_mm512_ternarylogic_epi32 0xea"] = by_lane<U>([](U a, U b, U c) { return (a & b) | c; });
  table["_mm512_sll_epi32"] = by_index<U>([](const ProbeOperands& in, size_t i) {
    const uint64_t count = in.mask & 63;
    return count < 32 ? get<U>(in.a, i) << count : 0;
  });
}

void add_integers(Table& table) {
  using U = uint32_t;
  table["_mm512_add_epi32"] = by_lane<U>([](U a, U b, U) { return a + b; });
  table["_mm512_sub_epi32"] = by_lane<U>([](U a, U b, U) { return a - b; });
  table["_mm512_mullo_epi32"] = by_lane<U>([](U a, U b, U) { return a * b; });
  table["_mm512_add_epi8"] = by_lane<uint8_t>([](int a, int b, int) { return a + b; });
  table["_mm512_sub_epi8"] = by_lane<uint8_t>([](int a, int b, int) { return a - b; });
  table["_mm512_mullo_epi16"] = by_lane<uint16_t>([](U a, U b, U) { return a * b; });
  table["_mm512_abs_epi8"] = by_lane<int8_t, uint8_t>([](int a, int, int) { return a < 0 ? -a : a; });
  table["_mm512_abs_epi32"] = by_lane<int32_t, U>([](int64_t a, int, int) { return a < 0 ? -a : a; });
  table["_mm512_madd_epi16"] = by_index<U>([](const ProbeOperands& in, size_t i) {
    const auto product = [&](size_t j) {
      return static_cast<U>(get<int16_t>(in.a, j) * get<int16_t>(in.b, j));
    };
    return product(2 * i) + product(2 * i + 1);
  });
  table["_mm512_maddubs_epi16"] = by_index<int16_t>([](const ProbeOperands& in, size_t i) {
    const auto product = [&](size_t j) { return get<uint8_t>(in.a, j) * get<int8_t>(in.b, j); };
    return saturated16(product(2 * i) + product(2 * i + 1));
  });
  table["_mm512_cvtepi8_epi32"] = by_lane<int8_t, int32_t>([](int a, int, int) { return a; });
  table["_mm512_cvtepu16_epi32"] = by_lane<uint16_t, U>([](U a, U, U) { return a; });
  table["_mm512_cvtsepi32_epi8"] =
      by_lane<int32_t, int8_t>([](int32_t a, int32_t, int32_t) { return std::clamp(a, -128, 127); });
  table["_mm512_cvtepi32_epi16"] = by_lane<U, uint16_t>([](U a, U, U) { return a; });
  table["_mm512_dpbusd_epi32"] = by_index<U>(dot_bytes);
  table["_mm256_dpbusd_avx_epi32"] = by_index<U>(dot_bytes, 32 / sizeof(U));
  table["_mm512_dpwssd_epi32"] = by_index<U>(dot_pairs);
  table["_mm256_dpwssd_avx_epi32"] = by_index<U>(dot_pairs, 32 / sizeof(U));
  table["_tile_dpbssd"] = by_tile<U>(tile_of_bytes);
  table["_tile_dpbf16ps"] = by_tile<float>(tile_of_bf16);
}

}  // namespace

const std::map<std::string, Definition>& definitions() {
  static const Table kAll = [] {
    Table table;
    add_floats(table);
    add_moves(table);
    add_masked(table);
    add_bits(table);
    add_integers(table);
    return table;
  }();
  return kAll;
}

}  // namespace quire::test
