#include "serve/file_answer.h"

#include <algorithm>

#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

namespace quire::serve {
namespace {

constexpr std::string_view kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// What is before the first `mark` in `text`, which keeps what is after it.
std::string_view take_until(std::string_view& text, char mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view out = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

/// Of a coding with the parameters "q=0.5": whether the weight is above 0.
bool is_wanted(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view parameter = take_until(parameters, ';');
    if (!boost::beast::iequals(take_until(parameter, '='), "q")) continue;
    return parameter.find_first_of("123456789") != std::string_view::npos;
  }
  return true;
}

}  // namespace

bool takes_gzip(std::string_view accept_encoding) {
  bool any = false;
  while (!accept_encoding.empty()) {
    std::string_view parameters = take_until(accept_encoding, ',');
    const std::string_view coding = take_until(parameters, ';');
    if (boost::beast::iequals(coding, "gzip") || boost::beast::iequals(coding, "x-gzip"))
      return is_wanted(parameters);
    if (coding == "*") any = is_wanted(parameters);
  }
  return any;
}

bool names_tag(std::string_view if_none_match, std::string_view tag) {
  if (trimmed(if_none_match) == "*") return true;
  // None of our tags has a comma.
  while (!if_none_match.empty()) {
    std::string_view named = take_until(if_none_match, ',');
    if (named.starts_with("W/")) named.remove_prefix(2);
    if (named == tag) return true;
  }
  return false;
}

HttpResponse file_answer(const page::File& file, const HttpRequest& request) {
  const bool compressed = takes_gzip(request.accept_encoding);
  // The two forms are different bytes, so a strong tag must differ too.
  const std::string tag = fmt::format("\"{}{}\"", file.hash, compressed ? "-gzip" : "");
  HttpResponse response{.content_type = std::string(page::content_type(file))};
  response.headers = {
      {"ETag", tag},
      {"Cache-Control", "no-cache"},
      {"Vary", "Accept-Encoding"},
      {"Content-Security-Policy", std::string(kContentPolicy)},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
  };
  if (names_tag(request.if_none_match, tag)) {
    response.status = 304;
    return response;
  }
  if (compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.lasting = compressed ? file.gzip : page::plain(file);
  return response;
}

}  // namespace quire::serve
