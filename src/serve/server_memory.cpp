#include "serve/server_memory.h"

#include <algorithm>

#include "serve/door.h"

namespace quire::serve {
namespace {

/// A connection's buffer (Connection::max_buffer_bytes), the object itself and its queued handlers.
constexpr uint64_t kConnectionBytes = 32 << 10;
/// The most memory for tokenizing a text, including its body: 51 bytes per byte were measured for 16 MB of
/// hex digits. Parsing JSON takes less: max_json_bytes, and the same again for the copies for a chat
/// template.
constexpr uint64_t kWorkFactor = 52;

constexpr uint64_t kLeastBody = 64 << 10;
constexpr uint64_t kLeastConnections = 64;
constexpr uint64_t kBeyond = Door::kCrowdedPlaces + Door::kLeavingPlaces;

uint64_t connection_memory(uint64_t connections) { return (connections + kBeyond) * kConnectionBytes; }

}  // namespace

uint64_t most_memory(const ServerConfig& config) {
  return connection_memory(config.max_connections) + config.max_body_memory + config.max_answer_memory +
         kWorkFactor * config.max_body_bytes;
}

bool fit_memory(ServerConfig& config, uint64_t bytes, bool keep_connections) {
  if (most_memory(config) <= bytes) return false;
  // A quarter is for connections, if they need that much; the rest is for bodies.
  if (!keep_connections) {
    const uint64_t places = bytes / 4 / kConnectionBytes;
    const uint64_t fits = std::max(kLeastConnections, places - std::min(places, kBeyond));
    config.max_connections = static_cast<uint32_t>(std::min<uint64_t>(config.max_connections, fits));
  }
  const uint64_t taken = connection_memory(config.max_connections);
  const uint64_t left = std::max(bytes / 4, bytes - std::min(bytes, taken));
  const uint64_t body =
      left / (kWorkFactor + ServerConfig::kBodyMemoryFactor + ServerConfig::kAnswerMemoryFactor);
  config.max_body_bytes = std::min(config.max_body_bytes, std::max(kLeastBody, body));
  config.max_body_memory =
      std::min(config.max_body_memory, ServerConfig::kBodyMemoryFactor * config.max_body_bytes);
  config.max_answer_memory =
      std::min(config.max_answer_memory, ServerConfig::kAnswerMemoryFactor * config.max_body_bytes);
  config.max_json_bytes = std::min(config.max_json_bytes, ServerConfig::kJsonFactor * config.max_body_bytes);
  return true;
}

}  // namespace quire::serve
