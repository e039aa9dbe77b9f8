#pragma once

#include <cstdint>

#include "serve/server.h"

// The memory that clients can make a server take, beside what the engine has for their sequences.
namespace quire::serve {

/// The most bytes that a server of this configuration takes: connections, bodies that have not been parsed,
/// answers that have not been read, and the one long body that is being parsed and tokenized at a time.
uint64_t most_memory(const ServerConfig& config);

/// Lowers the limits of bodies, and unless `keep_connections` that of connections, so that most_memory() is
/// no more than `bytes`, as far as that leaves a server: a body of 64 KiB and 64 connections stay. False if
/// nothing had to be lowered.
bool fit_memory(ServerConfig& config, uint64_t bytes, bool keep_connections);

}  // namespace quire::serve
