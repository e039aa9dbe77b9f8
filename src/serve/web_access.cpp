#include "serve/web_access.h"

#include <algorithm>
#include <cctype>

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace quire::serve {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_address(std::string_view name) {
  boost::system::error_code failed;
  asio::ip::make_address(std::string(name), failed);
  return !failed;
}

/// The parts of "name:port"; the brackets of an IPv6 address are removed.
struct Authority {
  std::string name;  // lower case, without the root's dot
  std::string port;  // empty if none
};
Authority parse_authority(std::string_view text) {
  Authority out;
  if (is_address(text)) {
    out.name = lower(text);
    return out;
  }
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    out.port = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (text.ends_with('.')) text.remove_suffix(1);
  out.name = lower(text);
  return out;
}

bool is_name(std::string_view text) {
  const auto fits = [](unsigned char c) {
    return c > ' ' && c < 0x7f &&
           std::string_view("/?#@,*\"\\").find(static_cast<char>(c)) == std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

bool is_loopback(const std::string& name) {
  if (name == "localhost" || name.ends_with(".localhost")) return true;
  boost::system::error_code failed;
  const auto address = asio::ip::make_address(name, failed);
  return !failed && address.is_loopback();
}

/// In lower case, without the default port of the scheme.
std::string normal_origin(std::string_view text) {
  std::string out = lower(text);
  if (out.starts_with("http://") && out.ends_with(":80")) out.resize(out.size() - 3);
  if (out.starts_with("https://") && out.ends_with(":443")) out.resize(out.size() - 4);
  return out;
}

}  // namespace

WebAccess::WebAccess(const std::vector<std::string>& origins, const std::vector<std::string>& hosts) {
  for (const std::string& origin : origins) {
    if (origin == "*") {
      any_origin_ = true;
      continue;
    }
    const size_t scheme = origin.find("://");
    const bool whole = scheme != std::string::npos && scheme > 0 && is_name(origin.substr(scheme + 3));
    if (!whole && origin != "null") {
      throw Error(fmt::format(
          "--allowed-origins: '{}' is not an origin: SCHEME://HOST[:PORT] without a path, or *", origin));
    }
    origins_.push_back(normal_origin(origin));
  }
  for (const std::string& host : hosts) {
    if (host == "*") {
      any_host_ = true;
      continue;
    }
    if (!is_name(host))
      throw Error(fmt::format("--allowed-hosts: '{}' is not a host: NAME, NAME:PORT or *", host));
    hosts_.push_back(lower(host));
  }
}

bool WebAccess::allows_host(std::string_view host) const {
  if (any_host_ || host.empty() || (hosts_.empty() && !on_loopback_)) return true;
  const Authority asked = parse_authority(host);
  if (is_loopback(asked.name) || (!on_loopback_ && is_address(asked.name))) return true;
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const std::string& entry) {
    const Authority allowed = parse_authority(entry);
    return allowed.name == asked.name && (allowed.port.empty() || allowed.port == asked.port);
  });
}

bool WebAccess::allows_origin(std::string_view origin, std::string_view host) const {
  if (any_origin_ || origin.empty()) return true;
  const std::string asked = normal_origin(origin);
  if (std::find(origins_.begin(), origins_.end(), asked) != origins_.end()) return true;
  // A proxy that ends TLS passes the Host on, so the page's scheme may be https.
  return asked == normal_origin(fmt::format("http://{}", host)) ||
         asked == normal_origin(fmt::format("https://{}", host));
}

std::vector<std::pair<std::string, std::string>> WebAccess::answer_headers(std::string_view origin) const {
  std::vector<std::pair<std::string, std::string>> out;
  if (any_origin_) {
    out.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    out.emplace_back("Vary", "Origin");
    if (origin.empty()) return out;
    out.emplace_back("Access-Control-Allow-Origin", origin);
  }
  out.emplace_back("Access-Control-Expose-Headers", "Retry-After");
  return out;
}

}  // namespace quire::serve
