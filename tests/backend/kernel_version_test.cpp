// Saved K/V is used again only under the same kKernelVersion. This test fails when kernels begin to compute
// other bits: raise the version in kernels/context.h, and write down the digests that it says.
#include <bit>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/backend/owning_executor.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"

namespace quire::backend {
namespace {

struct Expected {
  uint64_t bf16;
  uint64_t int8;     // of weights
  uint64_t kv_int8;  // of K/V
};

// Of the demo model, at kKernelVersion 8.
const std::map<std::string, Expected> kDigests = {
    {"avx2", {1393696435998590136U, 13049959898715071437U, 5419797871669213107U}},
    {"avx2-vnni", {1393696435998590136U, 13049959898715071437U, 5419797871669213107U}},
    {"avx512", {1393696435998590136U, 4602133457255862578U, 5640502728430868057U}},
    {"avx512-bf16", {12004388279800845683U, 12049041442162772621U, 14216761689042422589U}},
    {"avx512-vnni", {1393696435998590136U, 4602133457255862578U, 5640502728430868057U}},
    {"amx", {2141756463472658160U, 3146917039435774961U, 15338533937458190252U}},
};

/// Of the tokens and the bits of their logprobs.
uint64_t digest_of_answers(kernels::IsaLevel isa, cpu::DecoderOptions options, DType kv = DType::kBF16) {
  test::Rig rig(test::demo_model_dir(), options, isa, 1, kv);
  const auto specs = test::mixed_requests(rig.decoder->config().vocab_size, 6, 8);
  uint64_t digest = 0;
  for (const auto& answer : test::run_alone(rig.make_executor(), specs)) {
    EXPECT_EQ(answer.error, "");
    for (const SampledToken& token : answer.tokens) {
      digest = mix64(digest ^ static_cast<uint32_t>(token.token));
      for (const TokenLogprob& each : token.top)
        digest = mix64(digest ^ std::bit_cast<uint32_t>(each.logprob));
    }
  }
  return digest;
}

TEST(KernelVersion, SameVersionSameBits) {
  EXPECT_EQ(kernels::kKernelVersion, 8);
  for (const kernels::IsaLevel isa : kernels::available_isa_levels()) {
    const auto expected = kDigests.find(std::string(kernels::isa_name(isa)));
    if (expected == kDigests.end()) continue;  // the reference: as slow as it is never used
    SCOPED_TRACE(expected->first);
    EXPECT_EQ(digest_of_answers(isa, {.compute = DType::kBF16}), expected->second.bf16);
    EXPECT_EQ(digest_of_answers(isa, {.compute = DType::kBF16, .quantization = WeightFormat::kInt8}),
              expected->second.int8);
    EXPECT_EQ(digest_of_answers(isa, {.compute = DType::kBF16}, DType::kI8), expected->second.kv_int8);
  }
}

}  // namespace
}  // namespace quire::backend
