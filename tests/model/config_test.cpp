#include "model/config.h"

#include <fstream>
#include <functional>
#include <set>

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>

#include "backend/cpu/inspect.h"
#include "backend/cpu/weights.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/safetensors_writer.h"
#include "model/families.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

json::object base_config(const char* architecture) {
  return {{"architectures", json::array{architecture}},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"num_hidden_layers", 3},
          {"max_position_embeddings", 256},
          {"vocab_size", 512},
          {"torch_dtype", "bfloat16"}};
}

class Config : public testing::Test {
 protected:
  ModelConfig load(const json::object& config) {
    formats::write_json_file(dir_ / "config.json", config);
    return formats::load_model_config(dir_);
  }
  ModelConfig load(const char* architecture, const json::object& changes) {
    json::object config = base_config(architecture);
    for (const auto& member : changes) config[member.key()] = member.value();
    return load(config);
  }
  /// The message that these keys, put into a good Llama config, give.
  std::string error(const json::object& changes, const char* architecture = "LlamaForCausalLM") {
    try {
      load(architecture, changes);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("config.json: "));
      return e.what();
    }
    return "no error";
  }
  std::filesystem::path dir_ = test::temp_dir();
};

TEST_F(Config, PublishedForm) {
  const ModelConfig c = load("LlamaForCausalLM", {{"rope_theta", 500000.0},
                                                  {"rms_norm_eps", 1e-5},
                                                  {"head_dim", 32},
                                                  {"tie_word_embeddings", true},
                                                  {"bos_token_id", 1},
                                                  {"eos_token_id", json::array{7, 3}},
                                                  {"some_key_of_tomorrow", {{"a", 1}}},
                                                  {"rope_scaling",
                                                   {{"factor", 8.0},
                                                    {"high_freq_factor", 3.0},
                                                    {"low_freq_factor", 2.0},
                                                    {"original_max_position_embeddings", 64},
                                                    {"rope_type", "llama3"}}}});
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.head_dim, 32U);
  EXPECT_EQ(c.num_kv_heads, 2U);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_TRUE(c.tie_embeddings);
  EXPECT_DOUBLE_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(c.rope.theta, 500000.0);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLlama3);
  EXPECT_DOUBLE_EQ(c.rope.factor, 8.0);
  EXPECT_DOUBLE_EQ(c.rope.low_freq_factor, 2.0);
  EXPECT_DOUBLE_EQ(c.rope.high_freq_factor, 3.0);
  EXPECT_DOUBLE_EQ(c.rope.original_max_positions, 64.0);
  EXPECT_EQ(c.bos, 1);
  EXPECT_EQ(c.eos, (std::vector<TokenId>{3, 7}));
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{0, 0, 0}));
}

TEST_F(Config, FormOfTransformers5) {
  json::object config = base_config("Qwen3ForCausalLM");
  config.erase("torch_dtype");
  config["dtype"] = "float16";
  config["head_dim"] = nullptr;
  config["layer_types"] = json::array{"full_attention", "full_attention", "full_attention"};
  config["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  const ModelConfig c = load(config);
  EXPECT_EQ(c.dtype, DType::kF16);
  EXPECT_DOUBLE_EQ(c.rope.theta, 1000000.0);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(c.head_dim, 128U);
  EXPECT_EQ(c.qk_norm, QkNorm::kPerHead);
  EXPECT_FALSE(c.qkv_bias);
}

TEST_F(Config, DefaultsOfLlama) {
  json::object config = base_config("LlamaForCausalLM");
  config.erase("num_key_value_heads");
  config.erase("max_position_embeddings");
  const ModelConfig c = load(config);
  EXPECT_EQ(c.num_kv_heads, 4U);
  EXPECT_EQ(c.head_dim, 16U);
  EXPECT_EQ(c.max_positions, 2048U);
  EXPECT_FALSE(c.tie_embeddings);
  EXPECT_DOUBLE_EQ(c.rope.theta, 10000.0);
  EXPECT_FALSE(c.bos.has_value());
  EXPECT_TRUE(c.eos.empty());
  config.erase("architectures");
  config["model_type"] = "llama";
  EXPECT_EQ(load(config).architecture, "LlamaForCausalLM");
}

TEST_F(Config, Biases) {
  const auto llama = load("LlamaForCausalLM", {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const auto mistral = load("MistralForCausalLM", {{"attention_bias", true}});
  EXPECT_FALSE(mistral.qkv_bias || mistral.o_bias || mistral.mlp_bias);
  const auto qwen2 = load("Qwen2ForCausalLM", {});
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias || qwen2.mlp_bias);
  EXPECT_EQ(qwen2.qk_norm, QkNorm::kNone);
  const auto qwen3 = load("Qwen3ForCausalLM", {{"attention_bias", true}});
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.o_bias);
}

TEST_F(Config, Windows) {
  using Windows = std::vector<uint32_t>;
  EXPECT_EQ(load("MistralForCausalLM", {}).windows, (Windows{4096, 4096, 4096}));
  EXPECT_EQ(load("MistralForCausalLM", {{"sliding_window", nullptr}}).windows, (Windows{0, 0, 0}));
  EXPECT_EQ(load("MistralForCausalLM", {{"sliding_window", 16}}).windows, (Windows{16, 16, 16}));
  EXPECT_EQ(load("LlamaForCausalLM", {{"sliding_window", 16}}).windows, (Windows{0, 0, 0}));
  const json::object qwen = {{"sliding_window", 16}, {"max_window_layers", 1}};
  EXPECT_EQ(load("Qwen2ForCausalLM", qwen).windows, (Windows{0, 0, 0}));
  json::object on = qwen;
  on["use_sliding_window"] = true;
  EXPECT_EQ(load("Qwen2ForCausalLM", on).windows, (Windows{0, 16, 16}));
  on["max_window_layers"] = 28;
  EXPECT_EQ(load("Qwen3ForCausalLM", on).windows, (Windows{0, 0, 0}));
  on["layer_types"] = json::array{"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(load("Qwen2ForCausalLM", on).windows, (Windows{16, 0, 16}));
  on["use_sliding_window"] = false;
  EXPECT_EQ(load("Qwen2ForCausalLM", on).windows, (Windows{0, 0, 0}));
}

TEST_F(Config, RopeScalingForms) {
  const auto rope = [&](const json::object& scaling) {
    return load("LlamaForCausalLM", {{"rope_scaling", scaling}}).rope;
  };
  EXPECT_EQ(rope({{"type", "linear"}, {"factor", 4}}).scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope({{"type", "default"}}).scaling, RopeScaling::kNone);
  EXPECT_EQ(rope({{"type", "yarn"}, {"rope_type", "linear"}, {"factor", 2.0}}).scaling, RopeScaling::kLinear);
  const ModelConfig yarn = load("Qwen2ForCausalLM", {{"rope_scaling",
                                                      {{"type", "yarn"},
                                                       {"factor", 4.0},
                                                       {"original_max_position_embeddings", 128},
                                                       {"attention_factor", 1.5},
                                                       {"beta_fast", 16},
                                                       {"truncate", false}}}});
  EXPECT_EQ(yarn.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.rope.attention_factor, 1.5);
  EXPECT_DOUBLE_EQ(yarn.rope.beta_fast, 16.0);
  EXPECT_DOUBLE_EQ(yarn.rope.beta_slow, 1.0);
  EXPECT_FALSE(yarn.rope.truncate);
  EXPECT_EQ(yarn.max_positions, 512U);
}

TEST_F(Config, Phi3) {
  const ModelConfig plain = load("Phi3ForCausalLM", {});
  EXPECT_DOUBLE_EQ(plain.rms_norm_eps, 1e-5);
  EXPECT_EQ(plain.windows, (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_EQ(load("Phi3ForCausalLM", {{"sliding_window", 40}}).windows, (std::vector<uint32_t>{40, 40, 40}));
  EXPECT_EQ(load("Phi3ForCausalLM", {{"partial_rotary_factor", 0.75}}).rotary({.partial = 0.75}), 12U);
  const json::array eight = {1.0, 1, 1, 1.5, 1, 1, 1, 2};
  const json::object scaling = {{"type", "longrope"}, {"short_factor", eight}, {"long_factor", eight}};
  const ModelConfig c =
      load("Phi3ForCausalLM", {{"rope_scaling", scaling}, {"original_max_position_embeddings", 64}});
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLongrope);
  EXPECT_DOUBLE_EQ(c.rope.factor, 4.0);
  EXPECT_EQ(c.rope.long_factors.size(), 8U);
  json::object su = scaling;
  su["type"] = "su";
  EXPECT_EQ(load("Phi3ForCausalLM", {{"rope_scaling", su}}).rope.original_max_positions, 4096.0);
  su["long_factor"] = json::array{1, 2};
  EXPECT_THAT(error({{"rope_scaling", su}}, "Phi3ForCausalLM"),
              HasSubstr("key 'rope_scaling.long_factor': a list of 8 numbers"));
  su["long_factor"] = json::array{1, 1, 1, 1, 1, 1, 1, 0};
  EXPECT_THAT(error({{"rope_scaling", su}}, "Phi3ForCausalLM"), HasSubstr("key 'rope_scaling.long_factor'"));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "Phi3ForCausalLM"),
              HasSubstr("key 'rope_scaling.type': 'linear'"));
  EXPECT_THAT(error({{"partial_rotary_factor", 0.7}}, "Phi3ForCausalLM"), HasSubstr("not an even number"));
  EXPECT_THAT(error({{"partial_rotary_factor", 1.5}}, "Phi3ForCausalLM"), HasSubstr("out of range"));
}

TEST_F(Config, SmolLm3) {
  using Ropes = std::vector<LayerRope>;
  constexpr auto kMain = LayerRope::kMain;
  constexpr auto kNone = LayerRope::kNone;
  const char* family = "SmolLM3ForCausalLM";
  EXPECT_EQ(load(family, {}).layer_ropes, (Ropes{kMain, kMain, kMain}));  // every fourth
  EXPECT_TRUE(load(family, {}).tie_embeddings);
  EXPECT_DOUBLE_EQ(load(family, {}).rope.theta, 2e6);
  EXPECT_EQ(load(family, {{"no_rope_layer_interval", 2}}).layer_ropes, (Ropes{kMain, kNone, kMain}));
  const ModelConfig c =
      load(family,
           {{"no_rope_layers", json::array{0, 1, 0}}, {"use_sliding_window", true}, {"sliding_window", 16}});
  EXPECT_EQ(c.layer_ropes, (Ropes{kNone, kMain, kNone}));
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{16, 0, 16}));
  EXPECT_THAT(error({{"no_rope_layers", json::array{0, 1}}}, family), HasSubstr("key 'no_rope_layers'"));
  EXPECT_THAT(error({{"no_rope_layers", json::array{0, 1, 2}}}, family), HasSubstr("layer 2"));
}

TEST_F(Config, Gemma2) {
  const char* family = "Gemma2ForCausalLM";
  const ModelConfig c = load(family, {{"hidden_act", "gelu"}, {"num_key_value_heads", nullptr}});
  EXPECT_EQ(c.activation, Activation::kGeluTanh);  // "hidden_activation" counts
  EXPECT_TRUE(c.tie_embeddings && c.round_embedding_scale);
  EXPECT_DOUBLE_EQ(c.embedding_scale, 8.0);
  EXPECT_DOUBLE_EQ(c.attention_scale, 1.0 / 16.0);
  EXPECT_DOUBLE_EQ(c.attention_soft_cap, 50.0);
  EXPECT_DOUBLE_EQ(c.logit_soft_cap, 30.0);
  EXPECT_EQ(c.head_dim, 256U);
  EXPECT_EQ(c.num_kv_heads, 4U);
  EXPECT_EQ(c.windows, (std::vector<uint32_t>{4096, 0, 4096}));
  const ModelConfig uncapped =
      load(family, {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  EXPECT_DOUBLE_EQ(uncapped.attention_soft_cap + uncapped.logit_soft_cap, 0.0);
  EXPECT_THAT(error({{"hidden_activation", "gelu"}}, family), HasSubstr("key 'hidden_activation'"));
  EXPECT_THAT(error({{"query_pre_attn_scalar", nullptr}}, family), HasSubstr("key 'query_pre_attn_scalar'"));
  EXPECT_THAT(error({{"final_logit_softcapping", -1}}, family), HasSubstr("key 'final_logit_softcapping'"));
  EXPECT_THAT(error({{"use_bidirectional_attention", true}}, family),
              HasSubstr("key 'use_bidirectional_attention'"));
}

TEST_F(Config, Gemma3) {
  using Windows = std::vector<uint32_t>;
  const char* family = "Gemma3ForCausalLM";
  const json::object more = {{"num_hidden_layers", 7}, {"sliding_window", 32}};
  const ModelConfig c = load(family, more);
  EXPECT_EQ(c.windows, (Windows{32, 32, 32, 32, 32, 0, 32}));
  EXPECT_EQ(c.layer_rope(0), LayerRope::kLocal);
  EXPECT_EQ(c.layer_rope(5), LayerRope::kMain);
  EXPECT_DOUBLE_EQ(c.rope.theta, 1e6);
  EXPECT_DOUBLE_EQ(c.local_rope->theta, 10000.0);
  EXPECT_EQ(c.qk_norm, QkNorm::kPerHead);
  EXPECT_DOUBLE_EQ(c.logit_soft_cap, 0.0);
  json::object published = more;
  published["rope_local_base_freq"] = 20000.0;
  published["rope_theta"] = 3e6;
  published["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  published["sliding_window_pattern"] = 2;
  const ModelConfig p = load(family, published);
  EXPECT_EQ(p.windows, (Windows{32, 0, 32, 0, 32, 0, 32}));
  EXPECT_EQ(p.rope.scaling, RopeScaling::kLinear);
  EXPECT_DOUBLE_EQ(p.rope.theta, 3e6);
  EXPECT_EQ(p.local_rope->scaling, RopeScaling::kNone);
  EXPECT_DOUBLE_EQ(p.local_rope->theta, 20000.0);
  published["rope_scaling"] = {{"type", "linear"}, {"factor", 8.0}};
  EXPECT_THAT(error(published, family),
              HasSubstr("key 'rope_scaling.type': Gemma3ForCausalLM reads only 'rope_type'"));
  published["rope_scaling"] = {{"type", "default"}};
  EXPECT_EQ(load(family, published).rope.scaling, RopeScaling::kNone);
  json::object newest = more;
  newest["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 2e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  const ModelConfig n = load(family, newest);
  EXPECT_DOUBLE_EQ(n.rope.factor, 4.0);
  EXPECT_DOUBLE_EQ(n.rope.theta, 2e6);
  EXPECT_DOUBLE_EQ(n.local_rope->theta, 5000.0);
  EXPECT_THAT(error({{"attn_logit_softcapping", 50.0}}, family), HasSubstr("key 'attn_logit_softcapping'"));
}

TEST_F(Config, Gemma3InsideAModelThatSees) {
  json::object text = base_config("");
  for (const char* key :
       {"architectures", "vocab_size", "num_attention_heads", "num_key_value_heads", "torch_dtype"}) {
    text.erase(key);
  }
  text["head_dim"] = 16;
  json::object config = {{"architectures", json::array{"Gemma3ForConditionalGeneration"}},
                         {"model_type", "gemma3"},
                         {"eos_token_id", json::array{1, 106}},
                         {"torch_dtype", "bfloat16"},
                         {"text_config", text}};
  const ModelConfig c = load(config);
  EXPECT_EQ(c.vocab_size, 262208U);
  EXPECT_EQ(c.num_heads, 8U);
  EXPECT_EQ(c.eos, (std::vector<TokenId>{1, 106}));
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_EQ(formats::expected_tensors(c).front().name, "language_model.model.embed_tokens.weight");
  config["text_config"].get_object()["hidden_size"] = 0;
  EXPECT_THAT(
      [&] {
        try {
          load(config);
        } catch (const Error& e) {
          return std::string(e.what());
        }
        return std::string();
      }(),
      HasSubstr("key 'text_config.hidden_size'"));
}

TEST_F(Config, GraniteAndOlmo2) {
  const ModelConfig plain = load("GraniteForCausalLM", {});
  EXPECT_DOUBLE_EQ(plain.attention_scale, 1.0);
  EXPECT_DOUBLE_EQ(plain.embedding_scale * plain.residual_scale * plain.logit_scale, 1.0);
  const ModelConfig c = load("GraniteForCausalLM", {{"embedding_multiplier", 12},
                                                    {"residual_multiplier", 0.22},
                                                    {"attention_multiplier", 0.0078125},
                                                    {"logits_scaling", 8.0}});
  EXPECT_DOUBLE_EQ(c.embedding_scale, 12.0);
  EXPECT_DOUBLE_EQ(c.residual_scale, 0.22);
  EXPECT_DOUBLE_EQ(c.attention_scale, 0.0078125);
  EXPECT_DOUBLE_EQ(c.logit_scale, 0.125);
  EXPECT_FALSE(c.round_embedding_scale);
  EXPECT_THAT(error({{"logits_scaling", 0}}, "GraniteForCausalLM"), HasSubstr("key 'logits_scaling'"));
  const ModelConfig olmo = load("Olmo2ForCausalLM", {});
  EXPECT_EQ(olmo.qk_norm, QkNorm::kWhole);
  EXPECT_DOUBLE_EQ(olmo.rms_norm_eps, 1e-5);
}

TEST_F(Config, Experts) {
  const ModelConfig mixtral = load("MixtralForCausalLM", {});
  EXPECT_EQ(mixtral.moe.num_experts, 8U);
  EXPECT_EQ(mixtral.moe.top, 2U);
  EXPECT_EQ(mixtral.moe.ffn_size, 160U);
  EXPECT_TRUE(mixtral.moe.normalize && mixtral.has_experts(2));
  EXPECT_EQ(mixtral.windows, (std::vector<uint32_t>{0, 0, 0}));
  const ModelConfig qwen = load("Qwen3MoeForCausalLM", {{"num_experts", 16},
                                                        {"num_experts_per_tok", 4},
                                                        {"moe_intermediate_size", 48},
                                                        {"mlp_only_layers", json::array{1, 40}}});
  EXPECT_EQ(qwen.moe.num_experts, 16U);
  EXPECT_EQ(qwen.moe.ffn_size, 48U);
  EXPECT_FALSE(qwen.moe.normalize);
  EXPECT_TRUE(qwen.has_experts(0) && !qwen.has_experts(1) && qwen.has_experts(2));
  EXPECT_FALSE(load("Qwen3MoeForCausalLM", {{"decoder_sparse_step", 2}}).has_experts(0));
  EXPECT_THAT(error({{"num_local_experts", 1}}, "MixtralForCausalLM"),
              HasSubstr("key 'num_experts_per_tok': 2 of 1 experts"));
  EXPECT_THAT(error({{"mlp_only_layers", json::array{"x"}}}, "Qwen3MoeForCausalLM"),
              HasSubstr("key 'mlp_only_layers'"));
  EXPECT_THAT(error({{"num_experts", 4096}, {"num_hidden_layers", 4096}}, "Qwen3MoeForCausalLM"),
              HasSubstr("4096 layers of 4096 experts"));
  EXPECT_THAT(error({{"num_experts", 1 << 20}}, "Qwen3MoeForCausalLM"), HasSubstr("key 'num_experts'"));
}

std::string warnings_of(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST_F(Config, UnknownKeysAreAWarning) {
  const auto told = [&](const char* family, const json::object& changes) {
    return warnings_of([&] { load(family, changes); });
  };
  EXPECT_EQ(told("LlamaForCausalLM", {{"use_cache", true}, {"initializer_range", 0.1}, {"mystery", nullptr}}),
            "");
  EXPECT_THAT(
      told("LlamaForCausalLM", {{"mystery", 1.5}, {"attn_logit_softcapping", 30.0}}),
      HasSubstr("LlamaForCausalLM ignores keys that it does not know: attn_logit_softcapping, mystery"));
  EXPECT_EQ(told("Gemma2ForCausalLM", {{"attn_logit_softcapping", 30.0}}), "");
  EXPECT_THAT(told("MistralForCausalLM", {{"attention_bias", true}}), HasSubstr("attention_bias"));
}

TEST_F(Config, FalseUnderAnUnknownKeyIsAWarningToo) {
  const auto told = [&](const json::object& changes) {
    return warnings_of([&] { load("MistralForCausalLM", changes); });
  };
  EXPECT_THAT(told({{"use_rope", false}, {"use_rms_norm", false}}), HasSubstr("use_rms_norm, use_rope"));
  EXPECT_THAT(told({{"mystery", 0}}), HasSubstr("mystery"));
  // A bias that is not there, and the bookkeeping of transformers.
  for (const char* key : {"attention_bias",
                          "mlp_bias",
                          "qkv_bias",
                          "use_sliding_window",
                          "output_attentions",
                          "output_hidden_states",
                          "torchscript",
                          "use_bfloat16",
                          "tf_legacy_loss",
                          "is_decoder",
                          "tie_encoder_decoder",
                          "remove_invalid_values",
                          "output_scores",
                          "early_stopping",
                          "use_cache",
                          "do_sample",
                          "is_encoder_decoder",
                          "add_cross_attention",
                          "return_dict_in_generate",
                          "gradient_checkpointing"}) {
    EXPECT_EQ(told({{key, false}}), "") << key;
  }
  EXPECT_THAT(error({{"is_causal", false}}), HasSubstr("key 'is_causal': bidirectional attention"));
  EXPECT_EQ(told({{"is_causal", true}}), "");
  // How training cut the matmuls up; the weights and the logits are the same (Llama 2 70B, CodeLlama: 2).
  for (const int parts : {1, 2, 4}) EXPECT_EQ(told({{"pretraining_tp", parts}}), "") << parts;
}

TEST_F(Config, LayerTypesWhereAllLayersAreAlike) {
  const json::array full(3, "full_attention");
  const json::array sliding(3, "sliding_attention");
  for (const char* family : {"MixtralForCausalLM", "Phi3ForCausalLM", "Qwen3MoeForCausalLM"}) {
    const json::object windows = {{"sliding_window", 5}, {"use_sliding_window", true}};
    const auto with = [&](json::object changes, const json::array& types) {
      changes["layer_types"] = types;
      return load(family, changes).windows;
    };
    const std::vector<uint32_t> all(3, 5);
    EXPECT_THAT(warnings_of([&] { EXPECT_EQ(with(windows, full), all); }),
                HasSubstr("key 'layer_types': " + std::string(family) + " ignores it"));
    EXPECT_THAT(warnings_of([&] { EXPECT_EQ(with(windows, sliding), all); }),
                testing::Not(HasSubstr("layer_types")));
    const json::object none = {{"sliding_window", nullptr}};
    EXPECT_THAT(warnings_of([&] { EXPECT_EQ(with(none, sliding), std::vector<uint32_t>(3)); }),
                HasSubstr("ignores it"));
    EXPECT_THAT(warnings_of([&] { EXPECT_EQ(with(none, full), std::vector<uint32_t>(3)); }),
                testing::Not(HasSubstr("layer_types")));
  }
}

// Transformers takes a Mistral with them for a Ministral, which differs in nothing else.
TEST_F(Config, LayerTypesOfMistralCount) {
  const json::array types = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(load("MistralForCausalLM", {{"layer_types", types}, {"sliding_window", 5}}).windows,
            (std::vector<uint32_t>{5, 0, 5}));
}

TEST_F(Config, LayerTypesOfSmolLm3NeedNoFlag) {
  const json::array types = {"sliding_attention", "full_attention", "sliding_attention"};
  for (const json::value& flag : {json::value(nullptr), json::value(false), json::value(true)}) {
    const ModelConfig c = load("SmolLM3ForCausalLM", {{"layer_types", types},
                                                      {"sliding_window", 5},
                                                      {"use_sliding_window", flag},
                                                      {"num_hidden_layers", 3}});
    EXPECT_EQ(c.windows, (std::vector<uint32_t>{5, 0, 5}));
  }
}

TEST_F(Config, WhatCannotBeHonouredIsNamed) {
  EXPECT_THAT(error({{"architectures", json::array{"NobodyKnowsLM"}}}),
              HasSubstr("NobodyKnowsLM is not supported (known: "));
  EXPECT_THAT(error({{"architectures", json::array{"DeepseekV3ForCausalLM"}}}),
              HasSubstr("DeepseekV3ForCausalLM is not supported: it has latent attention"));
  EXPECT_THAT(error({{"architectures", json::array{"GPT2LMHeadModel"}}}),
              HasSubstr("key 'architectures': GPT2LMHeadModel is not supported: it has learned positions and "
                        "LayerNorm (known: LlamaForCausalLM, "));
  EXPECT_THAT(error({{"architectures", json::array{}}}), HasSubstr("key 'architectures'"));
  EXPECT_THAT(error({{"architectures", nullptr}}), HasSubstr("key 'model_type': missing"));
  EXPECT_THAT(error({{"architectures", nullptr}, {"model_type", "gpt2"}}), HasSubstr("key 'model_type'"));
  EXPECT_THAT(error({{"hidden_act", "gelu"}}), HasSubstr("key 'hidden_act': 'gelu'"));
  EXPECT_THAT(error({{"partial_rotary_factor", 0.5}}), HasSubstr("key 'partial_rotary_factor'"));
  EXPECT_THAT(error({{"quantization_config", {{"bits", 4}}}}), HasSubstr("key 'quantization_config'"));
  EXPECT_THAT(error({{"rope_interleaved", true}}), HasSubstr("key 'rope_interleaved'"));
  EXPECT_THAT(error({{"torch_dtype", "float8_e4m3fn"}}), HasSubstr("key 'torch_dtype'"));
  EXPECT_THAT(error({{"torch_dtype", "int8"}}), HasSubstr("key 'torch_dtype'"));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
              HasSubstr("key 'rope_scaling.type': 'dynamic' is not supported"));
  EXPECT_THAT(error({{"rope_parameters", {{"rope_type", "longrope"}, {"factor", 2.0}}}}),
              HasSubstr("key 'rope_parameters.rope_type'"));
  EXPECT_THAT(error({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
              HasSubstr("key 'rope_parameters.full_attention'"));
  EXPECT_THAT(error({{"rope_scaling", 4}}), HasSubstr("key 'rope_scaling'"));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "linear"}}}}),
              HasSubstr("key 'rope_scaling.factor': missing"));
  EXPECT_THAT(error({{"rope_scaling", {{"type", "linear"}, {"factor", -1}}}}),
              HasSubstr("key 'rope_scaling.factor'"));
  EXPECT_THAT(error({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}),
              HasSubstr("key 'rope_scaling.original_max_position_embeddings'"));
  EXPECT_THAT(error({{"rope_theta", 0}}), HasSubstr("key 'rope_theta'"));
  EXPECT_THAT(error({{"layer_types", json::array{"full_attention"}}}), HasSubstr("key 'layer_types'"));
  EXPECT_THAT(error({{"layer_types", json::array{"full_attention", "full_attention", "chunked"}}}),
              HasSubstr("key 'layer_types': layer 2"));
  EXPECT_THAT(error({{"layer_types", json::array{"full_attention", "full_attention", "sliding_attention"}}}),
              HasSubstr("key 'layer_types'"));
}

TEST_F(Config, SizesOutOfRangeAreNamed) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
                          "vocab_size", "max_position_embeddings", "num_key_value_heads", "head_dim"}) {
    for (const json::value& bad : {json::value(0), json::value(-4), json::value(int64_t{1} << 40),
                                   json::value("64"), json::value(1.5), json::value(1e300)}) {
      EXPECT_THAT(error({{key, bad}}), HasSubstr(std::string("key '") + key + "'")) << json::serialize(bad);
    }
  }
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"}) {
    EXPECT_THAT(error({{key, nullptr}}), HasSubstr(std::string("key '") + key + "': missing"));
  }
  EXPECT_THAT(error({{"num_key_value_heads", 3}}), HasSubstr("key 'num_key_value_heads': 3 does not divide"));
  EXPECT_THAT(error({{"head_dim", 15}}), HasSubstr("key 'head_dim'"));
  EXPECT_THAT(error({{"hidden_size", 66}}), HasSubstr("key 'num_attention_heads'"));
  EXPECT_THAT(error({{"rms_norm_eps", -1}}), HasSubstr("key 'rms_norm_eps'"));
  EXPECT_THAT(error({{"eos_token_id", 512}}), HasSubstr("key 'eos_token_id'"));
  EXPECT_THAT(error({{"eos_token_id", json::array{1, -1}}}), HasSubstr("key 'eos_token_id'"));
  EXPECT_THAT(error({{"eos_token_id", "2"}}), HasSubstr("key 'eos_token_id'"));
}

TEST_F(Config, MutatedConfigsNeverCrash) {
  const std::string good = read_file(test::demo_model_dir() / "config.json");
  const std::string_view spice = "0123456789{}[]\":,.-e nt\x80\xff";
  SplitMix64 rng(11);
  set_log_level(LogLevel::kError);  // many of these have a key that nobody knows
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string text = good;
    for (uint64_t edits = 1 + rng.below(3); edits > 0; --edits) {
      const size_t at = rng.below(text.size());
      if (rng.below(3) == 0) {
        text.erase(at, 1 + rng.below(6));
      } else {
        text[at] = spice[rng.below(spice.size())];
      }
    }
    std::ofstream(dir_ / "config.json", std::ios::binary) << text;
    try {
      backend::cpu::model_shape(formats::load_model_config(dir_), DType::kF32);
    } catch (const Error&) {
      ++refused;
    }
  }
  set_log_level(LogLevel::kInfo);
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 1500);
}

TEST_F(Config, EosOfBothFilesAreMerged) {
  formats::write_json_file(dir_ / "generation_config.json",
                           {{"bos_token_id", 5}, {"eos_token_id", json::array{9, 2}}});
  const ModelConfig c = load("LlamaForCausalLM", {{"eos_token_id", 2}});
  EXPECT_EQ(c.eos, (std::vector<TokenId>{2, 9}));
  EXPECT_EQ(c.bos, 5);
}

TEST_F(Config, SamplingDefaults) {
  EXPECT_FALSE(formats::load_sampling_defaults(dir_).temperature.has_value());
  const auto path = dir_ / "generation_config.json";
  formats::write_json_file(
      path, {{"temperature", 0.7}, {"top_p", 0.9}, {"top_k", 20}, {"repetition_penalty", 1.1}});
  const SamplingDefaults d = formats::load_sampling_defaults(dir_);
  EXPECT_FLOAT_EQ(*d.temperature, 0.7F);
  EXPECT_FLOAT_EQ(*d.top_p, 0.9F);
  EXPECT_EQ(d.top_k, 20);
  EXPECT_FLOAT_EQ(*d.repetition_penalty, 1.1F);
  EXPECT_FALSE(d.min_p.has_value());
  formats::write_json_file(path, {{"do_sample", false}, {"temperature", 0.7}, {"top_k", -1}});
  EXPECT_EQ(formats::load_sampling_defaults(dir_).temperature, 0.0F);
  EXPECT_EQ(formats::load_sampling_defaults(dir_).top_k, 0);
  formats::write_json_file(path, {{"do_sample", true}});
  EXPECT_EQ(formats::load_sampling_defaults(dir_).temperature, 1.0F);
  for (const char* key : {"temperature", "top_p", "min_p", "repetition_penalty", "top_k"}) {
    formats::write_json_file(path, json::object{{key, -3}});
    EXPECT_THROW(formats::load_sampling_defaults(dir_), Error) << key;
  }
}

TEST_F(Config, DTypeOfTheWeightsWhereTheConfigSaysNothing) {
  json::object config = base_config("LlamaForCausalLM");
  config.erase("torch_dtype");
  formats::SafetensorsWriter writer(dir_ / "model.safetensors", {{"x", DType::kF16, {1}}});
  writer.append(std::vector<std::byte>(2));
  writer.finish();
  EXPECT_EQ(load(config).dtype, DType::kF16);
}

TEST_F(Config, EveryFamilyIsFoundAndItsTensorsHaveNamesOfTheirOwn) {
  for (const Family& family : families()) {
    EXPECT_EQ(find_family(family.architecture), &family);
    EXPECT_EQ(find_family_of_type(family.model_type), &family);
    EXPECT_EQ(what_differs(family.architecture), "");
    if (family.nested) continue;
    std::set<std::string> names;
    const auto tensors = formats::expected_tensors(load(std::string(family.architecture).c_str(), {}));
    for (const formats::ExpectedTensor& tensor : tensors) names.insert(tensor.name);
    EXPECT_EQ(names.size(), tensors.size()) << family.architecture;
    EXPECT_FALSE(names.contains("model.layers.0..weight"));
  }
}

TEST_F(Config, NaNWeightsAreAWarning) {
  json::object json = base_config("LlamaForCausalLM");
  json["tie_word_embeddings"] = true;
  ModelConfig config = load(json);
  ThreadPool pool(2);
  kernels::KernelContext context{kernels::best_isa_level(), pool};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<formats::TensorSpec> specs;
    size_t bytes = 0;
    size_t at = 0;
    for (const formats::ExpectedTensor& t : formats::expected_tensors(config)) {
      specs.push_back({t.name, dtype, t.shape});
      if (t.name == "model.layers.1.mlp.down_proj.weight") at = bytes + 777 * dtype_bytes(dtype);
      bytes += TensorView{dtype, t.shape, nullptr}.num_bytes();
    }
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < dtype_bytes(dtype); ++i) data[at + i] = std::byte{0xff};
    formats::SafetensorsWriter writer(dir_ / "model.safetensors", specs);
    writer.append(data);
    writer.finish();
    const auto file = dir_ / "model.safetensors";
    const uint64_t data_begin = std::filesystem::file_size(file) - bytes;
    EXPECT_THAT(warnings_of([&] {
                  backend::cpu::load_weights(dir_, config, backend::cpu::WeightSetting{}, context);
                }),
                HasSubstr(file.string() + ": at byte " + std::to_string(data_begin + at) +
                          ": tensor 'model.layers.1.mlp.down_proj.weight': element 777 is NaN or infinite"));
  }
}

TEST_F(Config, WrongTensorsAreNamed) {
  const ModelConfig config = load("LlamaForCausalLM", {{"tie_word_embeddings", true}});
  const auto message =
      [&](const std::function<void(std::vector<formats::TensorSpec>&)>& change) -> std::string {
    std::vector<formats::TensorSpec> specs;
    size_t bytes = 0;
    for (const formats::ExpectedTensor& t : formats::expected_tensors(config))
      specs.push_back({t.name, DType::kBF16, t.shape});
    change(specs);
    for (const formats::TensorSpec& s : specs) bytes += TensorView{s.dtype, s.shape, nullptr}.num_bytes();
    formats::SafetensorsWriter writer(dir_ / "model.safetensors", specs);
    writer.append(std::vector<std::byte>(bytes));
    writer.finish();
    try {
      backend::cpu::inspect_model(dir_);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([](auto&) {}), "no error");
  EXPECT_EQ(message([](auto& specs) { specs.push_back({"more", DType::kI8, {3}}); }), "no error");
  EXPECT_THAT(
      message([](auto& specs) {
        specs[2].shape = {64, 65};
      }),
      AllOf(HasSubstr("model.safetensors: at byte "),
            HasSubstr(": tensor 'model.layers.0.self_attn.q_proj.weight' has shape [64, 65], expected "
                      "[64, 64]")));
  EXPECT_THAT(message([](auto& specs) {
                specs.back().shape = {64, 1};
              }),
              HasSubstr("tensor 'model.norm.weight' has shape [64, 1], expected [64]"));
  EXPECT_THAT(message([](auto& specs) { specs.back().dtype = DType::kI32; }), HasSubstr("has dtype i32"));
  EXPECT_THAT(message([](auto& specs) { specs.pop_back(); }),
              HasSubstr("tensor 'model.norm.weight' is missing"));
}

TEST(InspectModel, DemoModel) {
  const backend::ModelShape shape = backend::cpu::inspect_model(test::demo_model_dir());
  EXPECT_EQ(shape.num_parameters, 5475584U);
  EXPECT_EQ(shape.weight_bytes, 2 * 5475584U);
  EXPECT_EQ(shape.kv_bytes_per_token(), 3072U);
  EXPECT_EQ(shape.max_positions, 512U);
}

}  // namespace
}  // namespace quire::model
