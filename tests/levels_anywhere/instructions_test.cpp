// The emulated instructions against their definitions, and against the machine's own where it has them.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/levels_anywhere/definitions.h"
#include "tests/levels_anywhere/features.h"
#include "tests/levels_anywhere/probes.h"

namespace quire::test {
namespace {

constexpr int kRounds = 3000;

/// A page behind which there is none.
class EndOfMemory {
 public:
  EndOfMemory() {
    void* pages = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page_ = static_cast<std::byte*>(pages);
    EXPECT_EQ(mprotect(page_ + kPage, kPage, PROT_NONE), 0);
  }
  ~EndOfMemory() { munmap(page_, 2 * kPage); }
  EndOfMemory(const EndOfMemory&) = delete;
  EndOfMemory& operator=(const EndOfMemory&) = delete;

  std::byte* last(size_t bytes) const { return page_ + kPage - bytes; }
  void fill(SplitMix64 rng) const {
    std::generate_n(page_, kPage, [&] { return std::byte(rng.next()); });
  }
  std::string contents() const { return {reinterpret_cast<const char*>(page_), kPage}; }

 private:
  static constexpr size_t kPage = 4096;
  std::byte* page_;
};

constexpr uint32_t kWords[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x807fffff,
                               0x800000,   0x80800000, 0x800001,   0x3f800000, 0xbf800000, 0x3f000000,
                               0x3fc00000, 0x40200000, 0xc0200000, 0x4effffff, 0x4f000000, 0xcf000000,
                               0xcf000001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
                               0xffc00001, 0x7fffffff, 0x42fe0000, 0xc2fe0000, 0x43150000, 0xc3150000,
                               0x33000000, 0x38800000, 0x387fe000, 0x477fe000, 0x477ff000, 0x3f7fffff};

/// Numbers of all kinds, and those at which something changes. In some rounds all are of one kind, as the
/// sums of products that stay in range.
void fill(std::byte* to, SplitMix64& rng) {
  const uint64_t kind = rng.next() % 8;
  for (size_t i = 0; i < kProbeBytes; i += 4) {
    auto word = static_cast<uint32_t>(rng.next());
    const uint64_t draw = rng.next();
    const auto upper = [&] { return kWords[draw % std::size(kWords)] >> 16; };
    if (kind == 1 || (kind == 2 && draw % 4 == 0)) word = kWords[draw / 4 % std::size(kWords)];
    if (kind == 3) word = upper() << 16 | kWords[draw / 64 % std::size(kWords)] >> 16;  // pairs of bf16
    if (kind == 4) word = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int>(draw % 601) - 300) / 2);
    if (kind == 5) word = (word & 0x80ffffffU) | 0x3f000000U;  // near 1
    if (kind == 6) word = (word & 0x80ff80ffU) | 0x00000080U;  // f32 and bf16 near the least
    if (kind == 7) word = (word & 0x807fffffU) | 0x20000000U;  // whose products are
    std::memcpy(to + i, &word, sizeof(word));
  }
}

template <class T, class Bits>
bool same_lanes(const std::byte* a, const std::byte* b) {
  for (size_t i = 0; i < kProbeBytes; i += sizeof(T)) {
    T x;
    T y;
    std::memcpy(&x, a + i, sizeof(T));
    std::memcpy(&y, b + i, sizeof(T));
    if (std::isnan(x) && std::isnan(y)) continue;
    if (std::bit_cast<Bits>(x) != std::bit_cast<Bits>(y)) return false;
  }
  return true;
}
bool same_f16(const std::byte* a, const std::byte* b) {
  for (size_t i = 0; i < kProbeBytes; i += 2) {
    uint16_t x = 0;
    uint16_t y = 0;
    std::memcpy(&x, a + i, 2);
    std::memcpy(&y, b + i, 2);
    if ((x & 0x7fff) > 0x7c00 && (y & 0x7fff) > 0x7c00) continue;
    if (x != y) return false;
  }
  return true;
}
bool same(Lanes lanes, const std::byte* a, const std::byte* b) {
  if (lanes == Lanes::kF32) return same_lanes<float, uint32_t>(a, b);
  if (lanes == Lanes::kF64) return same_lanes<double, uint64_t>(a, b);
  if (lanes == Lanes::kF16) return same_f16(a, b);
  return std::memcmp(a, b, kProbeBytes) == 0;
}

std::string first_difference(const std::byte* got, const std::byte* wanted) {
  for (size_t i = 0; i < kProbeBytes; i += 4) {
    uint32_t x = 0;
    uint32_t y = 0;
    std::memcpy(&x, got + i, 4);
    std::memcpy(&y, wanted + i, 4);
    char text[80];
    std::snprintf(text, sizeof(text), "word %zu: %08x where %08x is wanted", i / 4, x, y);
    if (x != y) return text;
  }
  return "";
}

/// Runs both on one draw of operands; whether they did the same to the result and to memory.
template <class Tried, class Wanted>
testing::AssertionResult agree(uint64_t seed, const Definition& definition, const EndOfMemory& memory,
                               const Tried& tried, const Wanted& wanted) {
  SplitMix64 rng(seed);
  ProbeOperands in;
  for (std::byte* operand : {in.a, in.b, in.c}) fill(operand, rng);
  in.mask = rng.next();
  if (rng.next() % 2 == 0) in.mask = (uint64_t{1} << rng.next() % 64) - 1;
  size_t reach = 0;  // nothing is mapped behind the last lane that is accessed
  if (definition.memory_lanes > 0) {
    const uint64_t lanes = in.mask & ((uint64_t{1} << definition.memory_lanes) - 1);
    reach = static_cast<size_t>(std::bit_width(lanes)) * definition.memory_lane;
  }
  in.memory = memory.last(reach);
  alignas(64) std::byte got[kProbeBytes] = {};
  alignas(64) std::byte expected[kProbeBytes] = {};
  const bool accesses = definition.memory_lanes > 0;
  if (accesses) memory.fill(SplitMix64(seed));
  tried(in, got);
  const std::string left = accesses ? memory.contents() : "";
  if (accesses) memory.fill(SplitMix64(seed));
  wanted(in, expected);
  if (accesses && left != memory.contents())
    return testing::AssertionFailure() << "seed " << seed << ": memory differs";
  if (same(definition.lanes, got, expected)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "seed " << seed << ": " << first_difference(got, expected);
}

TEST(Instructions, GiveWhatTheirDefinitionsSay) {
  if (!emulated_features().avx512) GTEST_SKIP() << "this machine has no AVX2";
  const EndOfMemory memory;
  const Probes probes = emulated_probes();
  for (const Probe& probe : std::vector(probes.first, probes.first + probes.count)) {
    ASSERT_TRUE(definitions().contains(probe.name)) << probe.name;
    const Definition& definition = definitions().at(probe.name);
    const int rounds = probe.needs == Needs::kAmx ? kRounds / 10 : kRounds;
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(agree(static_cast<uint64_t>(round), definition, memory, probe.run, definition.run))
          << probe.name;
    }
  }
  EXPECT_EQ(probes.count, definitions().size());
}

bool runs_here(Needs needs) {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  switch (needs) {
    case Needs::kAvxVnni:
      return avx512 && __builtin_cpu_supports("avxvnni");  // the real probes are compiled with AVX-512
    case Needs::kAvx512:
      return avx512;
    case Needs::kVnni:
      return avx512 && __builtin_cpu_supports("avx512vnni");
    case Needs::kBf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
    case Needs::kAmx: {
      constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
      constexpr long kTileData = 18;
      return avx512 && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
             __builtin_cpu_supports("amx-int8") &&
             syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
    }
  }
  return false;
}

class OnThisMachine : public testing::TestWithParam<std::pair<const char*, Needs>> {};

TEST_P(OnThisMachine, GiveTheSame) {
  const Needs needs = GetParam().second;
  if (!runs_here(needs)) GTEST_SKIP() << "this machine has no " << GetParam().first;
  const EndOfMemory memory;
  const Probes emulated = emulated_probes();
  const Probes real = real_probes();
  ASSERT_EQ(emulated.count, real.count);
  for (size_t i = 0; i < real.count; ++i) {
    if (real.first[i].needs != needs) continue;
    ASSERT_STREQ(emulated.first[i].name, real.first[i].name);
    for (uint64_t round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(agree(round, definitions().at(real.first[i].name), memory, emulated.first[i].run,
                        real.first[i].run))
          << real.first[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Instructions, OnThisMachine,
                         testing::Values(std::pair{"avx_vnni", Needs::kAvxVnni},
                                         std::pair{"avx512", Needs::kAvx512}, std::pair{"vnni", Needs::kVnni},
                                         std::pair{"bf16", Needs::kBf16}, std::pair{"amx", Needs::kAmx}),
                         [](const auto& each) { return std::string(each.param.first); });

std::string text_of(const std::string& name) {
  std::ifstream file("tests/levels_anywhere/" + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The names in a text that are an intrinsic of these levels.
std::set<std::string> intrinsics_in(const std::string& text) {
  std::set<std::string> found;
  const auto is_part = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (auto at = text.begin(); at != text.end();) {
    at = std::find_if(at, text.end(), is_part);
    const auto end = std::find_if_not(at, text.end(), is_part);
    const std::string name(at, end);
    for (const char* prefix : {"_mm512_", "_mm256_dpbus", "_mm256_dpwss", "_mm256_mask_", "_mm256_maskz_",
                               "_mm_maskz_", "_tile_"}) {
      if (name.starts_with(prefix)) found.insert(name);
    }
    at = end;
  }
  return found;
}

TEST(Instructions, EachHasAProbe) {
  const std::set<std::string> probes = intrinsics_in(text_of("probe_bodies.h"));
  size_t found = 0;
  for (const char* header :
       {"float_lanes.h", "integer_lanes.h", "masked_memory.h", "products.h", "tiles.h"}) {
    const std::string text = text_of(std::string("instructions/") + header);
    ASSERT_FALSE(text.empty()) << "run from the root of the repository";
    for (const std::string& name : intrinsics_in(text)) {
      EXPECT_TRUE(probes.contains(name)) << name;
      ++found;
    }
  }
  EXPECT_GT(found, 80U);
}

}  // namespace
}  // namespace quire::test
