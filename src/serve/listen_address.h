#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"

namespace quire::serve {

/// "cannot listen on HOST:PORT: WHY".
Error cannot_listen(const std::string& host, uint16_t port, const boost::system::error_code& why);

/// Opens `acceptor` and binds it to the address, or to the first address of the name. Throws Error, naming
/// --host if the name is blank: the resolver would take that for all addresses.
void bind_address(boost::asio::ip::tcp::acceptor& acceptor, const std::string& host, uint16_t port);

/// Throws Error if no program could listen there at this moment: an unknown host, an address of another
/// machine, a port that is taken. For a program that has long work to do before it listens.
void check_listen_address(const std::string& host, uint16_t port);

}  // namespace quire::serve
