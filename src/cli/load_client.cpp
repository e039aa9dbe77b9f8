#include "cli/load_client.h"

#include <exception>
#include <string_view>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace quire::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using asio::use_awaitable;

/// Takes one "data: ..." line; true at "[DONE]".
bool take_event(std::string_view data, Nanos now, StreamedAnswer& answer) {
  if (data == "[DONE]") return true;
  const json::value event = json::parse(data);
  const json::object& root = event.as_object();
  if (const json::value* error = root.if_contains("error")) {
    answer.error = json::serialize(*error);
    return false;
  }
  if (const json::value* usage = root.if_contains("usage"); usage != nullptr && usage->is_object()) {
    answer.tokens = usage->at("completion_tokens").to_number<uint32_t>();
    answer.prompt_tokens = usage->at("prompt_tokens").to_number<uint32_t>();
  }
  const json::array& choices = root.at("choices").as_array();
  if (choices.empty() || choices[0].at("text").as_string().empty()) return false;
  if (answer.first < 0) {
    answer.first = now;
  } else {
    answer.gaps.push_back(now - answer.last);
  }
  answer.last = now;
  return false;
}

/// Takes the whole events off the head of `text`; true once the stream is done.
bool take_events(std::string& text, Nanos now, StreamedAnswer& answer) {
  constexpr std::string_view kData = "data: ";
  size_t begin = 0;
  bool done = false;
  for (size_t end = text.find("\n\n"); end != std::string::npos; end = text.find("\n\n", begin)) {
    const std::string_view event = std::string_view(text).substr(begin, end - begin);
    if (event.starts_with(kData)) done = take_event(event.substr(kData.size()), now, answer) || done;
    begin = end + 2;
  }
  text.erase(0, begin);
  return done;
}

}  // namespace

ServerUrl ServerUrl::parse(const std::string& url, const std::string& flag) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = url;
  const auto refuse = [&] {
    return Error(fmt::format("{}: '{}' is not of the form http://HOST:PORT", flag, url));
  };
  if (!rest.starts_with(kScheme)) throw refuse();
  rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  ServerUrl out{.host = std::string(rest.substr(0, colon))};
  if (colon != std::string_view::npos) out.port = std::string(rest.substr(colon + 1));
  if (out.host.empty() || out.port.empty() || rest.find('/') != std::string_view::npos) throw refuse();
  return out;
}

asio::awaitable<void> LoadClient::connect() {
  if (connected_) co_return;
  asio::ip::tcp::resolver resolver(stream_.get_executor());
  const auto found = co_await resolver.async_resolve(url_.host, url_.port, use_awaitable);
  co_await stream_.async_connect(found, use_awaitable);
  stream_.socket().set_option(asio::ip::tcp::no_delay(true));
  connected_ = true;
}

asio::awaitable<void> LoadClient::send(std::string method, std::string path, std::string body) {
  co_await connect();
  http::request<http::string_body> request(http::string_to_verb(method), path, 11);
  request.set(http::field::host, url_.host);
  request.set(http::field::content_type, "application/json");
  if (!api_key_.empty()) request.set(http::field::authorization, "Bearer " + api_key_);
  request.body() = std::move(body);
  request.prepare_payload();
  co_await http::async_write(stream_, request, use_awaitable);
}

asio::awaitable<std::string> LoadClient::get(std::string path) {
  try {
    co_await send("GET", path, {});
    boost::beast::flat_buffer buffer;
    http::response<http::string_body> response;
    co_await http::async_read(stream_, buffer, response, use_awaitable);
    if (response.result_int() != 200) {
      throw Error(fmt::format("{}: status {}: {}", path, response.result_int(), response.body()));
    }
    co_return std::move(response.body());
  } catch (const boost::system::system_error& failed) {
    throw Error(fmt::format("http://{}:{}{}: {}", url_.host, url_.port, path, failed.code().message()));
  }
}

asio::awaitable<void> LoadClient::follow(StreamedAnswer& answer) {
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  co_await http::async_read_header(stream_, buffer, parser, use_awaitable);
  std::string events;
  bool done = false;
  while (!parser.is_done()) {
    co_await http::async_read_some(stream_, buffer, parser, use_awaitable);
    std::string& body = parser.get().body();
    events += body;
    body.clear();
    if (parser.get().result_int() == 200) done = take_events(events, clock_.now(), answer) || done;
  }
  if (parser.get().result_int() != 200) {
    answer.error = fmt::format("status {}: {}", parser.get().result_int(), events);
  } else if (!done && answer.error.empty()) {
    answer.error = "the stream ended before [DONE]";
  }
  answer.last = clock_.now();
  if (!parser.get().keep_alive()) {
    stream_.close();
    connected_ = false;
  }
}

asio::awaitable<StreamedAnswer> LoadClient::stream(std::string path, std::string body) {
  StreamedAnswer answer;
  try {
    co_await send("POST", std::move(path), std::move(body));
    co_await follow(answer);
  } catch (const std::exception& failed) {
    answer.error = failed.what();
    stream_.close();
    connected_ = false;
  }
  co_return answer;
}

}  // namespace quire::cli
