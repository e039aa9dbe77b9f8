#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/http.h"

namespace quire::serve {

/// Which web pages may use the server from a browser: a page of any site can send requests to any server that
/// its visitor can reach. Two lists from the command line decide:
/// - hosts: names that the Host header may have, "NAME" (any port) or "NAME:PORT"; "*": any. This prevents a
///   page from making its own name point to the server (DNS rebinding). The names of this machine (localhost
///   and names below it, 127.0.0.0/8, ::1) are always allowed. An empty list allows no other names if the
///   server listens on loopback, and all names if it does not. An IP address cannot be made to point
///   elsewhere: a server beyond loopback accepts IP addresses whatever the list.
/// - origins: what the Origin header may have, "SCHEME://HOST[:PORT]" or "null"; "*": any. Pages of the
///   server's own host are always allowed, and so are requests without Origin, which do not come from a page
///   of another site.
/// Names are compared without regard to case. Thread-safe once the last bind() has returned.
class WebAccess {
 public:
  /// Throws Error, naming --allowed-origins or --allowed-hosts, if an entry has another form.
  WebAccess(const std::vector<std::string>& origins, const std::vector<std::string>& hosts);

  /// Sets whether the server listens on loopback. To be called before the first request.
  void bind(bool to_loopback) { on_loopback_ = to_loopback; }

  /// `host`: the header as received; empty: there is none (HTTP/1.0), which no browser omits.
  bool allows_host(std::string_view host) const;
  /// `origin`: the header as received, empty if there was none; `host`: that of the same request.
  bool allows_origin(std::string_view origin, std::string_view host) const;
  /// The headers of every answer to a request from this allowed origin.
  std::vector<std::pair<std::string, std::string>> answer_headers(std::string_view origin) const;

 private:
  std::vector<std::string>
      origins_;  // without the scheme's default port, in lower case; "*" is the only entry
  std::vector<std::string> hosts_;
  bool any_origin_ = false;
  bool any_host_ = false;
  bool on_loopback_ = true;
};

}  // namespace quire::serve
