#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace quire::test {

struct Answer {
  int status = 0;                              // 0: the connection ended before there was one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;  // the body ended as its framing says

  json::value parsed() const { return parse_json(body, "answer"); }
};

/// A plain blocking HTTP client over one connection, which can do everything wrong that a client can.
class HttpClient {
 public:
  /// `receive_buffer`: the socket's, in bytes; 0: the system's.
  explicit HttpClient(uint16_t port, int receive_buffer = 0);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// False if the server has closed the connection.
  bool send(std::string_view bytes);
  Answer read_answer(bool has_body = true);
  /// What comes until the connection ends or nothing has come for `patience`.
  std::string read_rest(std::chrono::milliseconds patience = std::chrono::seconds(60));
  /// What comes until `mark` has come; it may bring more than that.
  std::string read_until(std::string_view mark);
  /// Something has come that has not been read, or the connection has ended.
  bool readable(std::chrono::milliseconds patience);
  bool closed_by_server();  // within the patience of read_rest
  void shutdown_send();
  void close();

  Answer get(std::string_view path, std::string_view headers = {});
  Answer post(std::string_view path, std::string_view body, std::string_view headers = {});

 private:
  bool fill();

  int socket_ = -1;
  std::string buffer_;
};

/// The whole request as text.
std::string post_text(std::string_view path, std::string_view body, std::string_view headers = {});

}  // namespace quire::test
