// Blocks that leave the device while later steps write where they were.
#include "backend/cuda/block_mover.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/gemm.h"
#include "backend/cuda/weights.h"
#include "base/thread_pool.h"
#include "formats/model_config.h"
#include "tests/device_on_host/target.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;

constexpr const char* kModel = "tests/model/fixtures/granite-one-kv";
constexpr backend::PoolSize kPool = {
    .num_blocks = 4, .num_host_blocks = 2, .block_size = 16, .num_slots = 1, .max_model_len = 32};

/// A model with nothing in its blocks, and streams of its own.
struct Model {
  cuda::CudaOptions options{.model = kModel,
                            .dtype = DType::kF32,
                            .limits = {.rows = 16, .seqs = 1, .positions = 32, .logit_rows = 1}};
  model::ModelConfig config = formats::load_model_config(kModel);
  ThreadPool pool{1};
  cuda::OwnStream stream;
  cuda::ModelWeights weights = cuda::load_weights(kModel, config, DType::kF32, pool, stream.get());
  cuda::Gemm gemm{cublaslt(), stream.get()};
  cuda::DeviceModel model{options, config, weights, gemm, kPool, stream.get()};

  size_t block_bytes() const { return model.cache().whole_block_bytes(); }
  void fill(BlockId block, int value) {
    const std::vector<std::byte> bytes(block_bytes(), static_cast<std::byte>(value));
    model.write(block, bytes.data());
  }
  int first_byte(BlockId block) {
    std::vector<std::byte> bytes(block_bytes());
    model.read(block, bytes.data());
    return static_cast<int>(bytes.front());
  }
};

/// Block 0 leaves; a later plan's step writes it; then what left comes back as block 2.
TEST(BlockMover, ALaterStepWaitsForABlockThatLeaves) {
  for (uint64_t seed = 0; seed < 2 * kOrders; ++seed) {
    Device device(seed);
    Model one;
    one.fill(0, 1);
    one.fill(1, 2);
    cuda::BlockMover mover(one.model, kPool.num_blocks);
    control::StepPlan leaving;
    leaving.moves_out = {{.device = 0, .host = 0}};
    mover.start(leaving, nullptr);
    mover.order();
    mover.start({}, nullptr);
    mover.writes(0, 2);
    mover.order();
    one.model.copy({{{.from = 1, .to = 0}}});
    cuda::synchronize(one.stream.get());
    mover.done(2);
    control::StepPlan arriving;
    arriving.moves_in = {{.device = 2, .host = 0}};
    mover.start(arriving, nullptr);
    mover.order();
    EXPECT_EQ(one.first_byte(2), 1) << "seed " << seed;
    EXPECT_EQ(one.first_byte(0), 2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quire::test::fibers
