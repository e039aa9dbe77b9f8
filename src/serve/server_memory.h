#pragma once

#include <cstdint>

#include "serve/server.h"

// The memory that clients can make a server use, in addition to the engine's memory for their sequences.
namespace quire::serve {

/// The most bytes that a server with this configuration uses: connections, bodies that have not been parsed,
/// answers that have not been read, and the one long body that is being parsed and tokenized.
uint64_t most_memory(const ServerConfig& config);

/// Lowers the limits of bodies, and unless `keep_connections` the limit of connections, so that most_memory()
/// is at most `bytes`. The limits stay at least a body of 64 KiB and 64 connections. False if nothing had to
/// be lowered.
bool fit_memory(ServerConfig& config, uint64_t bytes, bool keep_connections);

}  // namespace quire::serve
