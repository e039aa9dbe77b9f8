#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/cpu/loaded_model.h"
#include "formats/mapped_file.h"
#include "kernels/context.h"
#include "model/config.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

// What a model is loaded as. Errors name an option as the command line does: "--dtype: ...".
namespace quire::startup {

/// The options of the model and the machine: model, number format, threads.
struct ModelOptions {
  std::string model;
  std::string dtype = "auto";
  std::string quantization = "auto";
  std::string isa = "auto";
  uint32_t threads = 0;  // 0: one per usable CPU
  uint32_t sliding_window = 0;
  std::optional<std::string> pack_cache;  // a folder; empty: the folder of the model
  bool no_mmap = false;
};

/// The compute type; nullopt: that of the checkpoint ("auto"). Throws Error, as do all of these.
std::optional<DType> pick_dtype(const std::string& name);
/// The type of K/V, which heads of so many elements fit; nullopt: the compute type.
std::optional<DType> pick_kv_dtype(const std::string& name, uint32_t head_dim);
/// The format to which the matrices are converted; nullopt: none ("auto", "none").
std::optional<WeightFormat> pick_quantization(const std::string& name);

/// The compute threads: those given, or one for each usable CPU.
uint32_t num_threads(const ModelOptions& options);

formats::FileAccess file_access(const ModelOptions& options);

/// The config of the model, changed by the options. If it is not a model, throws Error that says what a model
/// is.
model::ModelConfig config_of(const ModelOptions& options);

/// Loads the weights. `longest`: see DecoderOptions::max_positions.
std::unique_ptr<backend::cpu::LoadedModel> load_model(const ModelOptions& options, model::ModelConfig config,
                                                      uint32_t longest = 0);

}  // namespace quire::startup
