#include "serve/listen_address.h"

#include <fmt/format.h>

namespace quire::serve {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

Error cannot_listen(const std::string& host, uint16_t port, const error_code& why) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return Error(fmt::format("cannot listen on {}:{}: {}", is_ipv6 ? fmt::format("[{}]", host) : host, port,
                           why.message()));
}

void bind_address(tcp::acceptor& acceptor, const std::string& host, uint16_t port) {
  if (host.find_first_not_of(" \t\n\v\f\r") == std::string::npos) throw Error("--host: the address is empty");
  error_code failed;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found = resolver.resolve(host, std::to_string(port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, failed);
  if (failed) throw cannot_listen(host, port, failed);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), failed);
  if (!failed) acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
  if (!failed) acceptor.bind(endpoint, failed);
  if (failed) throw cannot_listen(host, port, failed);
}

void check_listen_address(const std::string& host, uint16_t port) {
  asio::io_context io(1);
  tcp::acceptor acceptor(io);
  bind_address(acceptor, host, port);
}

}  // namespace quire::serve
