#include "serve/http.h"

#include <ctime>
#include <iterator>

#include <boost/beast/http/status.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace quire::serve {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string response_head(const HttpResponse& response, Framing framing, bool keep_alive) {
  const auto reason =
      boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(response.status));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, std::string_view(reason));
  auto end = std::back_inserter(out);
  fmt::format_to(end, "Date: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", fmt::gmtime(std::time(nullptr)));
  out += "Server: quire\r\n";
  if (!has_no_body(response.status)) {
    fmt::format_to(end, "Content-Type: {}\r\n", response.content_type);
    if (framing == Framing::kLength) fmt::format_to(end, "Content-Length: {}\r\n", response.text().size());
    if (framing == Framing::kChunked) out += "Transfer-Encoding: chunked\r\n";
  }
  for (const auto& [name, value] : response.headers) fmt::format_to(end, "{}: {}\r\n", name, value);
  out += keep_alive ? "\r\n" : "Connection: close\r\n\r\n";
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace quire::serve
