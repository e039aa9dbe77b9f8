#include "backend/cpu/loaded_model.h"

#include <utility>

namespace quire::backend::cpu {

LoadedModel::LoadedModel(const std::filesystem::path& model, model::ModelConfig config,
                         const DecoderOptions& options, kernels::IsaLevel isa, uint32_t threads)
    : pool(threads), context{isa, pool}, decoder(Decoder::load(model, std::move(config), options, context)) {}

}  // namespace quire::backend::cpu
