#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/http.h"

namespace quire::serve {

/// Which web pages a browser may let use the server: a page of any site can send requests to whatever its
/// visitor can reach. Two lists decide, as the command line has them:
/// - hosts: names that the Host header may have, "NAME" (any port) or "NAME:PORT"; "*": any. They keep a page
///   from making its own name point to the server (DNS rebinding). The names of this machine (localhost and
///   those below it, 127.0.0.0/8, ::1) are always allowed. An empty list allows no others if the server
///   listens on loopback, and all if it does not. IP addresses are names that nobody can point elsewhere: a
///   server beyond loopback answers to them whatever the list.
/// - origins: what the Origin header may have, "SCHEME://HOST[:PORT]" or "null"; "*": any. Pages of the
///   server's own host are always allowed, and so is who sends no Origin, which is no page of another site.
/// Names are compared without regard to case. Thread-safe once the last bind() has returned.
class WebAccess {
 public:
  /// Throws Error, naming --allowed-origins or --allowed-hosts, if an entry is of neither form.
  WebAccess(const std::vector<std::string>& origins, const std::vector<std::string>& hosts);

  /// Where the server listens. Before the first request.
  void bind(bool to_loopback) { on_loopback_ = to_loopback; }

  /// `host`: the header as it came; empty: there is none (HTTP/1.0), and no browser leaves it out.
  bool allows_host(std::string_view host) const;
  /// `origin`: the header as it came, empty if there was none; `host`: that of the same request.
  bool allows_origin(std::string_view origin, std::string_view host) const;
  /// What every answer to a request of this allowed origin carries.
  std::vector<std::pair<std::string, std::string>> answer_headers(std::string_view origin) const;

 private:
  std::vector<std::string> origins_;  // without a scheme's usual port, in lower case; "*" stands alone
  std::vector<std::string> hosts_;
  bool any_origin_ = false;
  bool any_host_ = false;
  bool on_loopback_ = true;
};

}  // namespace quire::serve
