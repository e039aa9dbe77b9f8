#pragma once

#include <cstdint>

// The 512-bit registers as two of 256 bits, and the masks. Included by immintrin.h alone.

#define QUIRE_EMULATED static inline __attribute__((always_inline))
// What takes many instructions: inline in all that a kernel unrolls it makes GCC take three times as long.
#define QUIRE_CALLED static inline __attribute__((noinline))

struct __m512 {
  __m256 low, high;
};
struct __m512d {
  __m256d low, high;
};
struct __m512i {
  __m256i low, high;
};
using __m512bh = __m512i;
using __m256bh = __m256i;

using __mmask8 = uint8_t;
using __mmask16 = uint16_t;
using __mmask32 = uint32_t;
using __mmask64 = uint64_t;

// An instruction that does to each half what one of AVX2 does.
#define QUIRE_OF_ONE(Type, name, half) \
  QUIRE_EMULATED Type name(Type a) { return {half(a.low), half(a.high)}; }
#define QUIRE_OF_TWO(Type, name, half) \
  QUIRE_EMULATED Type name(Type a, Type b) { return {half(a.low, b.low), half(a.high, b.high)}; }
#define QUIRE_OF_THREE(Type, name, half)                              \
  QUIRE_EMULATED Type name(Type a, Type b, Type c) {                  \
    return {half(a.low, b.low, c.low), half(a.high, b.high, c.high)}; \
  }
// The same with a count, or with a result or an operand of another type.
#define QUIRE_BY_COUNT(name, half)                                                        \
  QUIRE_EMULATED __m512i name(__m512i a, unsigned count) {                                \
    return {half(a.low, static_cast<int>(count)), half(a.high, static_cast<int>(count))}; \
  }
#define QUIRE_FROM(From, To, name, half) \
  QUIRE_EMULATED To name(From a) { return {half(a.low), half(a.high)}; }

// A mask's bits as lanes of zeros and ones.
QUIRE_CALLED __m256i quire_lanes32(unsigned mask) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bits), bits);
}
QUIRE_CALLED __m256i quire_lanes16(unsigned mask) {
  const __m256i bits =
      _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
  return _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16(static_cast<int16_t>(mask)), bits), bits);
}
QUIRE_CALLED __m256i quire_lanes8(uint32_t mask) {
  const __m256i byte_of_lane =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201U));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(mask)), byte_of_lane);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

QUIRE_EMULATED __m256i quire_join(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
QUIRE_EMULATED __m128i quire_upper(__m256i a) { return _mm256_extracti128_si256(a, 1); }
