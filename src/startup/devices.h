#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backend/backend.h"
#include "model/config.h"
#include "tokenize/tokenizer.h"

namespace quire::startup {

struct EngineOptions;

/// A device that an engine can run on. A new one is a folder of backend/ and a row in devices.cpp.
struct Device {
  std::string_view name;     // of --device; of some ":N" may follow
  std::string_view summary;  // for --help
  /// Reads no weights and computes nothing: it has a cost model, but no K/V and nothing to pack.
  bool is_simulated = false;
  /// Loads the model, or what takes its place. `config`: config_of(options.model). Throws Error, also if this
  /// machine lacks what the device needs.
  std::unique_ptr<backend::Backend> (*make)(const EngineOptions& options, const model::ModelConfig& config,
                                            const tokenize::Tokenizer& tokenizer) = nullptr;
  bool has_several = false;  // "NAME:N" is the N-th of them, counted from 0
  bool may_be_gpu = false;
};

/// All of them; the first is default_device().
std::span<const Device> devices();
const Device& default_device();
/// A device and its number. Throws Error that says what is there if there is none of this name.
struct DeviceChoice {
  const Device* device = nullptr;
  uint32_t index = 0;
};
DeviceChoice find_device(std::string_view name);

}  // namespace quire::startup
