// What a machine carries: figures that can be checked by hand, and what must hold between them.
#include "startup/capacity.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/launches.h"
#include "base/error.h"
#include "control/kv/windows.h"
#include "formats/make_model.h"
#include "startup/capacity_plan.h"
#include "startup/local_engine.h"
#include "startup/simulated_machine.h"
#include "tests/support/data.h"
#include "tests/support/units.h"

namespace quire::startup {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using test::kMiB;
constexpr uint64_t kGiB = uint64_t{1} << 30;

ModelOutline outline_with(const std::string& config) {
  const auto dir = test::temp_dir();
  std::ofstream(dir / "config.json") << config;
  return outline_of(dir);
}

/// The values of Llama-2-7B's config.json.
ModelOutline llama_2_7b() {
  return outline_with(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float16",
    "bos_token_id": 1, "eos_token_id": 2})");
}

/// 8 experts in each of 4 layers, of which a token uses 2.
ModelOutline mixtral() {
  return outline_with(R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 1024, "rms_norm_eps": 1e-05,
    "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16"})");
}

/// 24 layers, of which every sixth has full attention and the others a window of 512.
ModelOutline gemma_3() {
  return outline_with(R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
    "hidden_size": 1152, "num_hidden_layers": 24, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 256, "intermediate_size": 6912, "vocab_size": 262144, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
    "sliding_window": 512, "sliding_window_pattern": 6, "rope_theta": 1000000,
    "rope_local_base_freq": 10000, "torch_dtype": "bfloat16"})");
}

Demand demand_of(uint64_t memory, uint32_t context, uint32_t max_model_len) {
  return {.memory = memory, .context = context, .max_model_len = max_model_len};
}

backend::MachineSpeed a10g() { return backend::find_machine("a10g")->speed; }

std::string refusal_of(const ModelOutline& model, const NumberFormats& formats, const Demand& demand) {
  try {
    make_capacity_plan(model, formats, {}, demand);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Capacity, Llama2Takes512KiBATokenAndAGiBFor2048) {
  const Capacity capacity = capacity_of(llama_2_7b(), {}, a10g(), demand_of(24 * kGiB, 2048, 4096));
  EXPECT_EQ(capacity.shape.num_parameters, 6'738'415'616U);
  EXPECT_EQ(capacity.shape.kv_bytes_per_token(), 512U << 10);
  EXPECT_EQ(capacity.block_bytes, 8 * kMiB);
  EXPECT_EQ(capacity.paged.bytes, kGiB);
  EXPECT_EQ(capacity.contiguous.bytes, 2 * kGiB);
  EXPECT_EQ(capacity.contiguous.unused, kGiB);
  // On average the last block lacks 7.5 of its 16 tokens.
  EXPECT_EQ(capacity.paged.unused, 15U * (512U << 10) / 2);
  ASSERT_EQ(capacity.kv.size(), 1U);
  EXPECT_EQ(capacity.kv[0].layers, 32U);
}

TEST(Capacity, MemoryIsDividedBetweenWeightsAndBlocks) {
  const ModelOutline model = llama_2_7b();
  const Capacity capacity = capacity_of(model, {}, a10g(), demand_of(24 * kGiB, 2048, 4096));
  // All but the embeddings in two bytes; the 65 norms in four.
  const uint64_t norms = 65 * 4096;
  EXPECT_EQ(capacity.weight_bytes, 2 * (6'738'415'616 - 32000 * 4096 - norms) + 4 * norms);
  EXPECT_EQ(capacity.weights.packed.at("f32"), 4 * norms);
  EXPECT_EQ(capacity.kv_bytes, 24 * kGiB - capacity.weight_bytes);
  EXPECT_EQ(capacity.blocks, capacity.kv_bytes / (8 * kMiB));
  EXPECT_EQ(capacity.tokens, capacity.blocks * 16);
  EXPECT_EQ(capacity.paged.users, capacity.kv_bytes / kGiB);
  EXPECT_EQ(capacity.contiguous.users, capacity.kv_bytes / (2 * kGiB));
  EXPECT_EQ(capacity.longest_sequence, 4096U);

  Demand demand = demand_of(24 * kGiB, 2048, 4096);
  demand.embeddings_in_file = false;
  EXPECT_EQ(capacity_of(model, {}, a10g(), demand).weight_bytes, capacity.weight_bytes + 2 * 32000 * 4096);
}

TEST(Capacity, CeilingsAreBytesAndOperationsOverRates) {
  const Capacity capacity = capacity_of(llama_2_7b(), {}, a10g(), demand_of(24 * kGiB, 2048, 4096));
  // Every weight is read and multiplied once a token, except for the embeddings.
  const double parameters = 6'738'415'616.0 - 32000.0 * 4096 - 65 * 4096;
  EXPECT_DOUBLE_EQ(capacity.token_flops, 2 * parameters + 32 * 4.0 * 4096 * 2048);
  EXPECT_DOUBLE_EQ(capacity.arithmetic, 70e12);
  for (const Ceiling& each : capacity.ceilings) {
    EXPECT_EQ(each.bytes, capacity.weight_bytes + each.batch * kGiB);
    EXPECT_DOUBLE_EQ(each.by_bandwidth, each.batch * 600e9 / static_cast<double>(each.bytes));
    EXPECT_DOUBLE_EQ(each.by_arithmetic, 70e12 / capacity.token_flops);
    EXPECT_EQ(each.fits, each.batch <= 11);
  }
  EXPECT_NEAR(capacity.ceilings[0].by_bandwidth, 42.0, 0.1);
  EXPECT_EQ(capacity.ceilings[0].tokens_per_second(), capacity.ceilings[0].by_bandwidth);
  // A prompt: 2,048 tokens through the layers, each attending to itself and those before it.
  const double layers = 2 * (parameters - 32000.0 * 4096) * 2048;
  EXPECT_NEAR(capacity.prompt_seconds, (layers + 32 * 4.0 * 4096 * 2048 * 2049 / 2) / 70e12, 1e-9);
}

TEST(Capacity, AnUnknownRateBoundsNothing) {
  const Capacity capacity = capacity_of(llama_2_7b(), {}, {}, demand_of(24 * kGiB, 2048, 4096));
  EXPECT_EQ(capacity.ceilings[0].by_bandwidth, 0);
  EXPECT_EQ(capacity.ceilings[0].by_arithmetic, 0);
  EXPECT_EQ(capacity.ceilings[0].tokens_per_second(), 0);
  EXPECT_EQ(capacity.prompt_seconds, 0);
  EXPECT_EQ(capacity.users.by_bandwidth, kManyUsers);
  EXPECT_EQ(capacity.users.by_arithmetic, kManyUsers);
  EXPECT_EQ(capacity.users.all, capacity.paged.users);
  EXPECT_EQ(capacity.users.limit, Limit::kMemory);
}

TEST(Capacity, UsersAreTheMostThatGetTheirRate) {
  const ModelOutline model = llama_2_7b();
  Demand demand = demand_of(200 * kGiB, 2048, 4096);
  const Capacity capacity = capacity_of(model, {}, a10g(), demand);
  EXPECT_EQ(capacity.users.limit, Limit::kBandwidth);
  const uint64_t users = capacity.users.all;
  const auto rate = [&](uint64_t batch) {
    return 600e9 / static_cast<double>(capacity.weight_bytes + batch * kGiB);
  };
  EXPECT_GE(rate(users), demand.user_rate);
  EXPECT_LT(rate(users + 1), demand.user_rate);
  demand.user_rate = 0;
  EXPECT_EQ(capacity_of(model, {}, a10g(), demand).users.all, capacity.paged.users);
  demand.user_rate = 50;  // one alone gets 42
  EXPECT_EQ(capacity_of(model, {}, a10g(), demand).users.all, 0U);
  demand.user_rate = 10;
  const backend::MachineSpeed slow{.bandwidth = 1e15, .f16 = 1e12};
  const Capacity computes = capacity_of(model, {}, slow, demand);
  EXPECT_EQ(computes.users.limit, Limit::kArithmetic);
  EXPECT_EQ(computes.users.all, static_cast<uint64_t>(1e12 / computes.token_flops / 10));
}

TEST(Capacity, NarrowerFormatsTakeLess) {
  const ModelOutline model = llama_2_7b();
  const Demand demand = demand_of(24 * kGiB, 2048, 4096);
  const auto with = [&](const char* weights, const char* kv) {
    return capacity_of(model, {weights, kv}, a10g(), demand);
  };
  EXPECT_EQ(with("none", "auto").weight_bytes, with("auto", "auto").weight_bytes);
  EXPECT_NEAR(static_cast<double>(with("int8", "auto").weight_bytes), 6.61e9, 0.03e9);
  EXPECT_LT(with("int4", "auto").weight_bytes, with("int8", "auto").weight_bytes * 6 / 10);
  EXPECT_DOUBLE_EQ(with("int4", "auto").arithmetic, 140e12);
  // A scale of four bytes for every head of 128, in K and in V.
  EXPECT_EQ(with("auto", "int8").shape.kv_bytes_per_token(), 32U * 32 * 2 * (128 + 4));
  EXPECT_THROW(with("int3", "auto"), Error);
  EXPECT_THROW(with("auto", "i3"), Error);
}

TEST(Capacity, WindowsAreHeldAndReadOnlyAsFarAsTheyReach) {
  const ModelOutline model = gemma_3();
  const Capacity capacity = capacity_of(model, {}, a10g(), demand_of(4 * kGiB, 8192, 32768));
  const uint64_t layer = 2 * 256 * 2;
  ASSERT_EQ(capacity.kv.size(), 2U);
  EXPECT_EQ(capacity.kv[0].window, 0U);
  EXPECT_EQ(capacity.kv[0].bytes_per_token, 4 * layer);
  EXPECT_EQ(capacity.kv[1].window, 512U);
  EXPECT_EQ(capacity.kv[1].bytes_per_token, 20 * layer);
  EXPECT_EQ(capacity.ceilings[0].bytes,
            capacity.weights.packed_bytes() + 8192 * 4 * layer + 512 * 20 * layer);
  EXPECT_EQ(capacity.paged.bytes,
            control::blocks_held(capacity.shape.kv_windows, 8192, 1, 16) * capacity.block_bytes);
  EXPECT_EQ(capacity.tokens, capacity.paged.users * 8192);
  // Without blocks and windows, all layers would reserve the longest sequence.
  EXPECT_EQ(capacity.contiguous.bytes, 32768 * 24 * layer);
  EXPECT_LT(capacity.paged.bytes, capacity.contiguous.bytes / 10);
}

TEST(Capacity, OfTheExpertsAStepReadsThoseThatItsTokensUse) {
  const Capacity capacity = capacity_of(mixtral(), {}, a10g(), demand_of(kGiB, 16, 1024));
  const uint64_t expert = 3 * 256 * 512;
  EXPECT_EQ(capacity.weights.expert_parameters, 4 * 8 * expert);
  EXPECT_EQ(capacity.weights.expert_bytes, 2 * capacity.weights.expert_parameters);
  const uint64_t packed = capacity.weights.packed_bytes();
  const uint64_t kv = 16 * capacity.shape.kv_bytes_per_token();
  // One token reads 2 of 8; of 64, hardly one expert stays unread.
  EXPECT_EQ(capacity.ceilings[0].bytes, packed - capacity.weights.expert_bytes * 6 / 8 + kv);
  EXPECT_NEAR(static_cast<double>(capacity.ceilings[2].bytes), static_cast<double>(packed + 64 * kv), 2);
  const double attention = 4.0 * 4 * 256 * 16;
  const double dense = static_cast<double>(capacity.weights.layer_parameters + 1024 * 256);
  EXPECT_DOUBLE_EQ(capacity.token_flops, 2 * (dense + 4 * 2 * expert) + attention);
}

TEST(Capacity, ARooflinesStepsAreItsCeilings) {
  for (const ModelOutline& model : {llama_2_7b(), mixtral(), gemma_3()}) {
    const uint32_t context = model.shape.max_positions / 2;
    const Capacity capacity =
        capacity_of(model, {}, a10g(), demand_of(24 * kGiB, context, model.shape.max_positions));
    const backend::sim::RooflineCost& cost = capacity.roofline;
    EXPECT_NO_THROW(cost.check());
    EXPECT_DOUBLE_EQ(cost.overhead_s, 0.5e-6 * backend::cuda::step_launches(model.config));
    EXPECT_EQ(cost.host_link, 25e9);
    EXPECT_EQ(cost.block_bytes, capacity.block_bytes);
    for (const Ceiling& each : capacity.ceilings) {
      const double step =
          static_cast<double>(cost.duration(decode_work(each.batch, context))) / 1e9 - cost.overhead_s;
      EXPECT_NEAR(step, each.batch / each.tokens_per_second(), 1e-9) << each.batch;
    }
  }
}

TEST(Capacity, AStepThatDecodesSamplesFromEachRow) {
  const backend::StepWork work = decode_work(3, 100);
  EXPECT_EQ(work.decode_context, 3 * 99);
  EXPECT_EQ(work.logit_rows, 3);
  EXPECT_EQ(work.sampled_rows, 3);
  const backend::StepWork prompt = backend::prompt_work_of(100);
  EXPECT_EQ(prompt.chunk_squares, 100 * 100);
  EXPECT_EQ(prompt.sampled_rows, 1);
}

TEST(SimulatedMachine, HasTheMemoryBesideTheWeights) {
  const ModelOutline model = llama_2_7b();
  ChosenMachine machine{.name = "a10g", .title = "a card", .memory = 24 * kGiB, .speed = a10g()};
  machine.embeddings_in_file = false;
  const SimulatedMachine made = simulated_machine(model, {"int8", "int8"}, machine, 32);
  Demand demand = demand_of(24 * kGiB, 1, 4096);
  demand.embeddings_in_file = false;
  demand.block_size = 32;
  const Capacity capacity = capacity_of(model, {"int8", "int8"}, a10g(), demand);
  EXPECT_EQ(made.kv_bytes, capacity.kv_bytes);
  EXPECT_EQ(made.shape.kv_bytes_per_token(), capacity.shape.kv_bytes_per_token());
  EXPECT_EQ(made.cost.weight_bytes, capacity.weights.packed_bytes());
  EXPECT_EQ(made.cost.rate, 140e12);
  EXPECT_EQ(made.cost.machine, "a card");
  const SimulatedMachine half = simulated_machine(model, {"int8", "int8"}, with_efficiency(machine, 0.5), 32);
  EXPECT_EQ(half.cost.rate, 70e12);
  EXPECT_EQ(half.cost.bandwidth, 300e9);
  EXPECT_EQ(half.cost.overhead_s, made.cost.overhead_s);
  machine.memory = 8 * kGiB;
  EXPECT_NO_THROW(simulated_machine(model, {"int4", "auto"}, machine, 16));
  try {
    simulated_machine(model, {}, machine, 16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--machine: a card has 8.0 GiB of memory, and the weights take 12.6 GiB: no K/V block fits");
  }
}

TEST(Capacity, MadeModelsHaveTheirShapes) {
  const auto dir = test::temp_dir();
  formats::make_model("tiny", dir, 1);
  const ModelOutline whole = outline_of(dir);
  EXPECT_FALSE(whole.absent);
  const Capacity with_weights = capacity_of(whole, {}, a10g(), demand_of(64 * kMiB, 512, 1024));
  std::filesystem::remove(dir / "model.safetensors");
  const ModelOutline config_only = outline_of(dir / "config.json");
  EXPECT_EQ(config_only.absent, "no .safetensors file is here");
  const Capacity from_config = capacity_of(config_only, {}, a10g(), demand_of(64 * kMiB, 512, 1024));
  EXPECT_EQ(with_weights.shape.kv_bytes_per_token(), 2U * 2 * 2 * 16 * 2);
  EXPECT_EQ(with_weights.weight_bytes, from_config.weight_bytes);
  EXPECT_EQ(with_weights.blocks, from_config.blocks);
  EXPECT_EQ(with_weights.token_flops, from_config.token_flops);
}

TEST(Capacity, TheEngineMakesTheSamePool) {
  const ModelOutline model = outline_of(test::demo_model_dir());
  for (const uint32_t block_size : {16U, 48U}) {
    for (const char* kv : {"auto", "int8"}) {
      EngineOptions options;
      options.model.model = model.path;
      options.model.quantization = "int8";
      options.max_num_batched_tokens = "64";
      options.kv_cache_dtype = kv;
      options.block_size = block_size;
      Demand demand = demand_of(7 * kMiB, 100, 512);
      demand.block_size = block_size;
      const Capacity capacity = capacity_of(model, {"int8", kv}, {}, demand);
      options.kv_cache_memory = std::to_string(capacity.kv_bytes);
      const LocalEngine engine(options, "demo");
      EXPECT_EQ(engine.config.scheduler.num_blocks, capacity.blocks);
      EXPECT_EQ(engine.config.scheduler.max_model_len, capacity.longest_sequence);
    }
  }
}

/// A shape that make-model knows, as published.
struct PublishedShape {
  const char* name;
  uint32_t hidden, layers, heads, kv_heads, ffn, vocab;
  bool tied;
  uint64_t parameters;
  uint64_t kv_bytes_per_token;
};

TEST(Capacity, KnownShapesHaveTheirPublishedSizes) {
  constexpr PublishedShape kShapes[] = {
      {"Llama", 2048, 16, 32, 8, 8192, 128256, true, 1'235'814'400, 32 << 10},
      {"Llama", 3072, 28, 24, 8, 8192, 128256, true, 3'212'749'824, 112 << 10},
      {"Llama", 4096, 32, 32, 8, 14336, 128256, false, 8'030'261'248, 128 << 10},
      {"Qwen2", 896, 24, 14, 2, 4864, 151936, true, 494'032'768, 12 << 10},
  };
  for (const PublishedShape& shape : kShapes) {
    const bool llama = std::string_view(shape.name) == "Llama";
    const ModelOutline model = outline_with(fmt::format(
        R"({{"architectures": ["{}ForCausalLM"], "model_type": "{}", "hidden_size": {},
        "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {},
        "intermediate_size": {}, "vocab_size": {}, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
        "hidden_act": "silu", "tie_word_embeddings": {}, "torch_dtype": "bfloat16"}})",
        shape.name, llama ? "llama" : "qwen2", shape.hidden, shape.layers, shape.heads, shape.kv_heads,
        shape.ffn, shape.vocab, shape.tied));
    const Capacity capacity = capacity_of(model, {}, a10g(), demand_of(24 * kGiB, 2048, 8192));
    EXPECT_EQ(capacity.shape.num_parameters, shape.parameters);
    EXPECT_EQ(capacity.shape.kv_bytes_per_token(), shape.kv_bytes_per_token);
    // A tied head is packed beside the embeddings.
    const uint64_t matrices = capacity.weights.layer_parameters + capacity.weights.head_parameters;
    EXPECT_EQ(capacity.weights.packed.at("bf16"), 2 * matrices);
    EXPECT_EQ(capacity.paged.bytes, 2048 * shape.kv_bytes_per_token);
  }
}

TEST(CapacityPlan, RanksChangesByTheUsersTheyGain) {
  const CapacityPlan plan = make_capacity_plan(llama_2_7b(), {}, a10g(), demand_of(24 * kGiB, 2048, 4096));
  std::vector<std::string> flags;
  uint64_t users = kManyUsers;
  for (const Change& change : plan.changes) {
    EXPECT_LE(change.users.all, users);
    users = change.users.all;
    flags.push_back(change.flag);
  }
  EXPECT_THAT(flags, testing::UnorderedElementsAre("--memory 48GiB", "--context 1024", "--quantization int8",
                                                   "--quantization int4", "--kv-cache-dtype int8"));
  EXPECT_EQ(flags.front(), "--memory 48GiB");
  EXPECT_EQ(
      plan.advice,
      "memory is the limit, at 11 users; --memory 48GiB would carry 35 users, 3.2 times as many; of the "
      "server's flags, --kv-cache-dtype int8 would carry 22 users, 2.0 times as many");
}

TEST(CapacityPlan, SaysOnlyWhatCanStillBeChanged) {
  const CapacityPlan plan =
      make_capacity_plan(llama_2_7b(), {"int4", "int8"}, a10g(), demand_of(24 * kGiB, 2048, 4096));
  for (const Change& change : plan.changes) {
    EXPECT_THAT(change.flag, Not(StartsWith("--quantization")));
    EXPECT_THAT(change.flag, Not(StartsWith("--kv-cache-dtype")));
  }
  EXPECT_THAT(plan.advice, Not(HasSubstr("server's flags")));
}

TEST(CapacityPlan, ASlowMachineIsToldWhatHelpsOneUserMost) {
  const backend::MachineSpeed slow{.bandwidth = 20e9};
  const CapacityPlan plan = make_capacity_plan(llama_2_7b(), {}, slow, demand_of(32 * kGiB, 2048, 4096));
  EXPECT_EQ(plan.capacity.users.all, 0U);
  EXPECT_EQ(plan.changes.front().flag, "--quantization int4");
  EXPECT_EQ(plan.advice,
            "bandwidth is the limit: one user alone gets at most 1.4 tokens/s, less than --user-rate 10; no "
            "change below is enough, and most of all helps --quantization int4: 4.4 tokens/s");
}

TEST(CapacityPlan, ASequenceThatDoesNotFitIsNoError) {
  const uint64_t weights = capacity_of(llama_2_7b(), {}, {}, demand_of(0, 2048, 4096)).weight_bytes;
  const CapacityPlan plan =
      make_capacity_plan(llama_2_7b(), {}, a10g(), demand_of(weights + 800 * kMiB, 2048, 4096));
  EXPECT_EQ(plan.capacity.users.all, 0U);
  EXPECT_EQ(plan.capacity.longest_sequence, 1600U);
  EXPECT_THAT(plan.advice, StartsWith("memory is the limit: no sequence of 2,048 tokens fits"));
}

TEST(CapacityPlan, WeightsThatDoNotFitAreRefusedWithWhatIsNeeded) {
  const ModelOutline model = llama_2_7b();
  EXPECT_EQ(refusal_of(model, {}, demand_of(8 * kGiB, 2048, 4096)),
            "--memory: 8.0 GiB cannot hold the weights, 12.3 GiB: with one sequence of 2,048 tokens at least "
            "13.3 GiB is needed; as int8 they take 6.2 GiB; as int4 they take 3.3 GiB");
  EXPECT_THAT(refusal_of(model, {}, demand_of(kGiB, 2048, 4096)), Not(HasSubstr("as int")));
}

TEST(CapacityPlan, RefusesWhatTheModelCannotDo) {
  const ModelOutline model = llama_2_7b();
  EXPECT_EQ(refusal_of(model, {}, demand_of(24 * kGiB, 2048, 4097)),
            "--max-model-len: 4097 is more than the 4096 positions of the model");
  EXPECT_EQ(refusal_of(model, {}, demand_of(24 * kGiB, 2048, 1024)),
            "--context: 2048 is more than the longest sequence, 1024 tokens");
  Demand odd = demand_of(24 * kGiB, 2048, 4096);
  odd.block_size = 24;
  EXPECT_EQ(refusal_of(model, {}, odd), "--block-size: 24 is not a multiple of 16");
}

TEST(Machines, HaveAllRatesAndTheirSource) {
  for (const backend::Machine& machine : backend::known_machines()) {
    EXPECT_EQ(backend::find_machine(machine.name), &machine);
    EXPECT_GT(machine.memory, 0U) << machine.name;
    EXPECT_GT(machine.speed.bandwidth, 0) << machine.name;
    EXPECT_GT(machine.speed.f16, machine.speed.f32) << machine.name;
    EXPECT_EQ(machine.speed.f16, machine.speed.bf16) << machine.name;
    EXPECT_NEAR(machine.speed.integer / machine.speed.bf16, 2, 0.01) << machine.name;
    EXPECT_THAT(std::string(machine.source), HasSubstr("data sheet")) << machine.name;
  }
  EXPECT_EQ(backend::find_machine("cpu"), nullptr);
}

}  // namespace
}  // namespace quire::startup
