#include "tests/serve/http_client.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace quire::test {
namespace {

constexpr int kPatienceMs = 60000;

/// Again when a signal came between: libFuzzer's alarm, for one.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool wait_readable(int socket, int milliseconds) {
  pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
  return uninterrupted([&] { return poll(&entry, 1, milliseconds); }) > 0;
}

/// 0, or errno. A connect that a signal interrupts goes on by itself.
int connect_to(int socket, const sockaddr_in& address) {
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
  if (errno != EINTR) return errno;
  pollfd entry{.fd = socket, .events = POLLOUT, .revents = 0};
  if (uninterrupted([&] { return poll(&entry, 1, kPatienceMs); }) <= 0) return ETIMEDOUT;
  int failed = 0;
  socklen_t size = sizeof failed;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 ? failed : errno;
}

}  // namespace

HttpClient::HttpClient(uint16_t port, int receive_buffer) {
  socket_ = socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int waited = 0;;) {
    const int failed = connect_to(socket_, address);
    if (failed == 0) return;
    // Each connection holds its port for a minute after its end; after some ten thousand none is free at
    // first.
    if (failed != EADDRNOTAVAIL || waited >= kPatienceMs) {
      close();
      throw std::runtime_error(fmt::format("cannot connect: {}", std::strerror(failed)));
    }
    constexpr int kPortWaitMs = 100;
    poll(nullptr, 0, kPortWaitMs);
    waited += kPortWaitMs;
  }
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void HttpClient::shutdown_send() { shutdown(socket_, SHUT_WR); }

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        uninterrupted([&] { return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::fill() {
  char bytes[65536];
  if (!wait_readable(socket_, kPatienceMs)) return false;
  const ssize_t got = uninterrupted([&] { return recv(socket_, bytes, sizeof bytes, 0); });
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

std::string HttpClient::read_rest(std::chrono::milliseconds patience) {
  char bytes[65536];
  while (wait_readable(socket_, static_cast<int>(patience.count()))) {
    const ssize_t got = uninterrupted([&] { return recv(socket_, bytes, sizeof bytes, 0); });
    if (got <= 0) break;
    buffer_.append(bytes, static_cast<size_t>(got));
  }
  return std::exchange(buffer_, {});
}

bool HttpClient::readable(std::chrono::milliseconds patience) {
  return !buffer_.empty() || wait_readable(socket_, static_cast<int>(patience.count()));
}

bool HttpClient::closed_by_server() {
  char byte = 0;
  return wait_readable(socket_, kPatienceMs) &&
         uninterrupted([&] { return recv(socket_, &byte, 1, 0); }) <= 0;
}

std::string HttpClient::read_until(std::string_view mark) {
  while (buffer_.find(mark) == std::string::npos && fill()) {
  }
  return buffer_;
}

Answer HttpClient::read_answer(bool has_body) {
  Answer answer;
  read_until("\r\n\r\n");
  const size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  answer.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t line_end = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    answer.headers[name] = head.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  if (!has_body || answer.status == 204) {
    answer.complete = true;
  } else if (answer.headers.contains("content-length")) {
    const size_t length = std::stoul(answer.headers["content-length"]);
    while (buffer_.size() < length && fill()) {
    }
    answer.complete = buffer_.size() >= length;
    answer.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
  } else if (answer.headers.contains("transfer-encoding")) {
    for (;;) {
      while (buffer_.find("\r\n") == std::string::npos && fill()) {
      }
      const size_t line = buffer_.find("\r\n");
      if (line == std::string::npos) break;
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + size + 4 && fill()) {
      }
      if (buffer_.size() < line + size + 4) break;
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + size + 4);
      if (size == 0) {
        answer.complete = true;
        break;
      }
    }
  } else {
    answer.body = read_rest();
    answer.complete = true;
  }
  return answer;
}

Answer HttpClient::get(std::string_view path, std::string_view headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers));
  return read_answer();
}

std::string post_text(std::string_view path, std::string_view body, std::string_view headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), headers, body);
}

Answer HttpClient::post(std::string_view path, std::string_view body, std::string_view headers) {
  send(post_text(path, body, headers));
  return read_answer();
}

}  // namespace quire::test
