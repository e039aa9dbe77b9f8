#pragma once

#include <string>
#include <vector>

#include "api/quire/quire.h"
#include "base/json.h"
#include "engine/engine.h"
#include "startup/engine_options.h"

// What a program gives, checked, in the form that the engine takes.
namespace quire::api {

/// Throws Error naming the option.
startup::EngineOptions engine_options(const std::string& path, const ModelOptions& options);

/// A request without its prompt. Throws Exception (kRequest) naming the field.
engine::GenerationRequest engine_request(const RequestOptions& options, const SamplingDefaults& defaults);

/// The inputs of a chat template. Throws Exception (kRequest) naming the message.
json::object template_context(const std::vector<Message>& messages);

}  // namespace quire::api
