#include "bench/load_client.h"

#include <charconv>
#include <exception>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "record/display_text.h"

namespace quire::bench {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
using asio::use_awaitable;

/// Of a refusal; the rest is not read.
constexpr size_t kMostErrorBytes = size_t{1} << 16;

/// Of one read, so that what has come together is taken together.
constexpr size_t kMostReadBytes = size_t{1} << 16;

/// The member of that name if it is a string that is not empty.
std::string_view text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

/// A server's error, short enough for a line: the text of {"message": ...}, or any other value unchanged.
std::string error_text(const json::value& error) {
  std::string text;
  if (error.is_object()) text = text_of(error.get_object(), "message");
  if (error.is_string()) text = error.get_string();
  if (text.empty()) text = json::serialize(error);
  constexpr size_t kMost = 200;
  if (text.size() > kMost) text = text.substr(0, kMost) + " ...";
  return record::printable(text);
}

/// The text of an answer with a status other than 200.
std::string refusal_text(unsigned status, const std::string& body) {
  boost::system::error_code no_json;
  const json::value parsed = json::parse(body, no_json);
  const json::value* error =
      !no_json && parsed.is_object() ? parsed.get_object().if_contains("error") : nullptr;
  if (error == nullptr && !no_json) error = &parsed;
  const std::string text =
      body.empty() ? "" : ": " + error_text(error != nullptr ? *error : json::value(body));
  return fmt::format("status {}{}", status, text);
}

/// How many tokens a choice adds: the number of its ids, some of which may have no text yet, or one for a
/// piece of text of a completion or a chat completion (or of the reasoning).
uint32_t tokens_of(const json::object& choice) {
  const json::value* tokens = choice.if_contains("token_ids");
  if (tokens != nullptr && tokens->is_array() && !tokens->get_array().empty()) {
    return static_cast<uint32_t>(tokens->get_array().size());
  }
  if (!text_of(choice, "text").empty()) return 1;
  const json::value* delta = choice.if_contains("delta");
  if (delta == nullptr || !delta->is_object()) return 0;
  const json::object& fields = delta->get_object();
  const bool any = !text_of(fields, "content").empty() || !text_of(fields, "reasoning_content").empty() ||
                   !text_of(fields, "reasoning").empty();
  return any ? 1 : 0;
}

uint32_t count_of(const json::object& usage, std::string_view name) {
  const json::value* value = usage.if_contains(name);
  boost::system::error_code bad;
  const auto count = value != nullptr && value->is_number() ? value->to_number<uint32_t>(bad) : 0;
  return bad ? 0 : count;
}

}  // namespace

ServerUrl ServerUrl::parse(std::string_view url, std::string_view flag) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&](const char* why) {
    return Error(fmt::format("{}: '{}' is not of the form http://HOST:PORT{}", flag, url, why));
  };
  std::string_view rest = url;
  if (rest.starts_with("https://")) throw refuse(" (TLS is not spoken here)");
  if (!rest.starts_with(kScheme)) throw refuse("");
  rest.remove_prefix(kScheme.size());
  if (rest.find_first_of(" \t\r\n?#@") != std::string_view::npos) throw refuse("");
  ServerUrl out;
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    std::string_view path = rest.substr(slash);
    while (path.ends_with('/')) path.remove_suffix(1);
    if (path.ends_with("/v1")) path.remove_suffix(3);
    out.base = path;
    rest = rest.substr(0, slash);
  }
  std::string_view port = "80";
  const size_t bracket = rest.rfind(']');
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    port = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
  }
  const bool is_ipv6 = rest.starts_with('[') && rest.ends_with(']');
  if (is_ipv6) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty() || (!is_ipv6 && rest.find_first_of(":[]") != std::string_view::npos)) throw refuse("");
  uint16_t number = 0;
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (failed != std::errc() || end != port.data() + port.size() || number == 0) {
    throw refuse(" (a port is a number up to 65535)");
  }
  out.host = rest;
  out.port = port;
  return out;
}

std::string ServerUrl::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

void EventReader::push(std::string_view bytes, const std::function<void(std::string_view)>& take) {
  while (!bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t at = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, at);
    if (line_.size() + data_.size() > kMostBytes) {
      throw Error(fmt::format("an event of more than {} bytes", kMostBytes));
    }
    if (at == std::string_view::npos) return;
    after_return_ = bytes[at] == '\r';
    bytes.remove_prefix(at + 1);
    end_line(take);
  }
}

void EventReader::end_line(const std::function<void(std::string_view)>& take) {
  constexpr std::string_view kField = "data";
  if (line_.empty()) {
    if (has_data_) take(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  std::string_view value = line_;
  if (value.substr(0, value.find(':')) == kField) {
    value.remove_prefix(std::min(value.size(), kField.size() + 1));
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
  line_.clear();
}

void StreamedAnswer::take(std::string_view data) {
  if (data == "[DONE]") {
    done = true;
    return;
  }
  boost::system::error_code bad;
  const json::value event = json::parse(data, bad);
  if (bad || !event.is_object()) {
    if (error.empty()) error = "an event that is not a JSON object: " + error_text(json::value(data));
    return;
  }
  const json::object& root = event.get_object();
  if (const json::value* said = root.if_contains("error"); said != nullptr && !said->is_null()) {
    if (error.empty()) error = error_text(*said);
    return;
  }
  if (const json::value* usage = root.if_contains("usage"); usage != nullptr && usage->is_object()) {
    tokens = count_of(usage->get_object(), "completion_tokens");
    prompt_tokens = count_of(usage->get_object(), "prompt_tokens");
    has_usage = true;
    const json::value* details = usage->get_object().if_contains("prompt_tokens_details");
    if (details != nullptr && details->is_object() && details->get_object().contains("cached_tokens")) {
      cached_tokens = count_of(details->get_object(), "cached_tokens");
    }
  }
  const json::value* choices = root.if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
  const json::value& choice = choices->get_array().front();
  const uint32_t news = choice.is_object() ? tokens_of(choice.get_object()) : 0;
  fresh += news;
  if (!has_usage && news > 0) ++tokens;
}

void StreamedAnswer::arrive(Nanos now) {
  const auto count = static_cast<Nanos>(std::exchange(fresh, 0));
  if (count == 0) return;
  if (first < 0) {
    first = now;
  } else {
    const Nanos gap = now - last;
    for (Nanos i = 0; i < count; ++i) gaps.push_back(gap * (i + 1) / count - gap * i / count);
  }
  last = now;
}

/// One request in progress.
struct LoadClient::Exchange {
  http::verb method;
  std::string path;
  std::string body;
  bool heard = false;  // something came back
};

void LoadClient::close() {
  stream_.close();
  connected_ = false;
}

std::string LoadClient::explain(const boost::system::error_code& code, bool heard) const {
  if (code == boost::beast::error::timeout) {
    return fmt::format("the server was silent for {:g} s (--timeout)",
                       static_cast<double>(patience_.count()) / 1000);
  }
  if (code == http::error::end_of_stream || code == http::error::partial_message ||
      code == asio::error::eof || code == asio::error::connection_reset || code == asio::error::broken_pipe) {
    return heard ? "the server closed the connection in the middle of its answer"
                 : "the server closed the connection without an answer";
  }
  if (code == asio::error::connection_refused) {
    return "no server listens there: start one, such as quire serve MODEL, or name another with --url";
  }
  if (code.category() == http::make_error_code(http::error::bad_version).category()) {
    return fmt::format("the answer is not HTTP ({})", code.message());
  }
  return code.message();
}

asio::awaitable<void> LoadClient::connect() {
  if (connected_) co_return;
  asio::ip::tcp::resolver resolver(stream_.get_executor());
  // Addresses need no other thread, which names are looked up on.
  boost::system::error_code is_name;
  auto found = resolver.resolve(url_.host, url_.port, asio::ip::resolver_base::numeric_host, is_name);
  if (is_name) found = co_await resolver.async_resolve(url_.host, url_.port, use_awaitable);
  stream_.expires_after(patience_);
  co_await stream_.async_connect(found, use_awaitable);
  stream_.socket().set_option(asio::ip::tcp::no_delay(true));
  connected_ = true;
}

asio::awaitable<void> LoadClient::send(Exchange& exchange) {
  co_await connect();
  http::request<http::string_body> request(exchange.method, url_.base + exchange.path, 11);
  request.set(http::field::host, url_.authority());
  if (!api_key_.empty()) request.set(http::field::authorization, "Bearer " + api_key_);
  if (exchange.method == http::verb::post) {
    request.set(http::field::content_type, "application/json");
    request.body() = exchange.body;
  }
  request.prepare_payload();
  stream_.expires_after(patience_);
  co_await http::async_write(stream_, request, use_awaitable);
}

asio::awaitable<std::string> LoadClient::get(std::string path) {
  Exchange exchange{http::verb::get, std::move(path), {}};
  const std::string whole = fmt::format("http://{}{}{}", url_.authority(), url_.base, exchange.path);
  try {
    co_await send(exchange);
    boost::beast::flat_buffer buffer;
    http::response<http::string_body> response;
    co_await http::async_read(stream_, buffer, response, use_awaitable);
    if (!response.keep_alive()) close();
    if (response.result_int() != 200) {
      throw Error(fmt::format("{}: {}", whole, refusal_text(response.result_int(), response.body())));
    }
    co_return std::move(response.body());
  } catch (const boost::system::system_error& failed) {
    throw Error(fmt::format("{}: {}", whole, explain(failed.code(), false)));
  }
}

/// Parses all of the body that is in the buffer; Beast's own read would return it chunk by chunk.
void LoadClient::parse_held(Answer& parser, boost::beast::flat_buffer& buffer) {
  while (buffer.size() > 0 && !parser.is_done()) {
    boost::system::error_code failed;
    buffer.consume(parser.put(buffer.data(), failed));
    if (failed == http::error::need_more) return;
    if (failed) throw boost::system::system_error(failed);
  }
}

asio::awaitable<void> LoadClient::read_more(Answer& parser, boost::beast::flat_buffer& buffer) {
  boost::system::error_code failed;
  stream_.expires_after(patience_);
  const size_t got = co_await stream_.async_read_some(buffer.prepare(kMostReadBytes),
                                                      asio::redirect_error(use_awaitable, failed));
  buffer.commit(got);
  if (failed == asio::error::eof) {
    failed.clear();
    parser.put_eof(failed);
  }
  if (failed) throw boost::system::system_error(failed);
}

asio::awaitable<void> LoadClient::follow(Exchange& exchange, StreamedAnswer& answer) {
  boost::beast::flat_buffer buffer;
  Answer parser;
  parser.body_limit(boost::none);
  stream_.expires_after(patience_);
  co_await http::async_read_header(stream_, buffer, parser, use_awaitable);
  exchange.heard = true;
  const unsigned status = parser.get().result_int();
  EventReader reader;
  std::string refusal;
  bool any_event = false;
  while (true) {
    const Nanos now = clock_.now();
    parse_held(parser, buffer);
    std::string& body = parser.get().body();
    if (status == 200) {
      reader.push(body, [&](std::string_view data) {
        any_event = true;
        answer.take(data);
      });
      answer.arrive(now);
    } else {
      refusal += body;
      if (refusal.size() > kMostErrorBytes) break;
    }
    body.clear();
    if (parser.is_done() || answer.done) break;
    co_await read_more(parser, buffer);
  }
  answer.end = clock_.now();
  if (status != 200) {
    answer.error = refusal_text(status, refusal);
  } else if (!answer.done && answer.error.empty()) {
    answer.error = any_event ? "the stream ended before [DONE]" : "the answer is not a stream of events";
  }
  // Reads the rest of the body, the end of the last chunk, which the server must still send.
  while (!parser.is_done() && answer.done) {
    stream_.expires_after(std::chrono::seconds(1));
    co_await http::async_read_some(stream_, buffer, parser, use_awaitable);
    parser.get().body().clear();
  }
  if (!parser.is_done() || !parser.get().keep_alive()) close();
}

asio::awaitable<StreamedAnswer> LoadClient::stream(std::string path, std::string body) {
  Exchange exchange{http::verb::post, std::move(path), std::move(body)};
  while (true) {
    StreamedAnswer answer;
    const bool kept = connected_;
    try {
      co_await send(exchange);
      co_await follow(exchange, answer);
      co_return answer;
    } catch (const boost::system::system_error& failed) {
      close();
      // The answer is complete; only the connection did not end properly.
      if (answer.done) co_return answer;
      if (kept && !exchange.heard && failed.code() != boost::beast::error::timeout) continue;
      // An earlier error from the server is more specific.
      if (answer.error.empty()) answer.error = explain(failed.code(), exchange.heard);
    } catch (const std::exception& failed) {
      close();
      answer.error = failed.what();
    }
    answer.end = clock_.now();
    co_return answer;
  }
}

}  // namespace quire::bench
