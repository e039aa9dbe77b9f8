// What one client may make the server hold: framing, bodies, connections.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/service.h"
#include "tests/support/units.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::HttpClient;
using test::post_text;
using test::Service;
using test::ServiceOptions;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

using test::kMillisecond;
constexpr size_t kMegabyte = 1'000'000;

// ---- Framing ----

std::string chunked(const std::string& rest) {
  return "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
         "Transfer-Encoding: chunked\r\n\r\n" +
         rest;
}

struct LongFraming {
  const char* name;
  std::string body;
};

std::vector<LongFraming> framings() {
  const std::string most(kMegabyte, '0');
  std::string trailers;
  for (int i = 0; trailers.size() < kMegabyte; ++i) trailers += fmt::format("t{}: {}\r\n", i, i);
  std::string extended;
  while (extended.size() < 4 * kMegabyte) extended += "1;e=" + std::string(1000, 'e') + "\r\n \r\n";
  return {{"chunk size", most + "2\r\n{}\r\n0\r\n\r\n"},
          {"chunk size without an end", most},
          {"extension", "2;e=" + most + "\r\n{}\r\n0\r\n\r\n"},
          {"extension of the last chunk", "2\r\n{}\r\n0;e=" + most + "\r\n\r\n"},
          {"one long trailer", "2\r\n{}\r\n0\r\nt: " + most + "\r\n\r\n"},
          {"a trailer of 70 KB", "2\r\n{}\r\n0\r\nt: " + most.substr(0, 70'000) + "\r\n\r\n"},
          {"a trailer without an end", "2\r\n{}\r\n0\r\nt: " + most},
          {"many trailers", "2\r\n{}\r\n0\r\n" + trailers + "\r\n"},
          {"many extensions", extended + "2\r\n{}\r\n0\r\n\r\n"}};
}

TEST(Framing, BeyondAnyUseIsRefusedInEveryForm) {
  Service service;
  for (const auto& [name, body] : framings()) {
    SCOPED_TRACE(name);
    HttpClient client(service.port());
    client.send(chunked(body));
    EXPECT_THAT(client.read_answer().status, AnyOf(400U, 431U));
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_EQ(service.get("/health").status, 200);
}

TEST(Framing, OfOrdinarySizesIsTaken) {
  Service service;
  HttpClient client(service.port());
  const std::string prompt = R"({"prompt": ")" + std::string(60, 'a') + "\"}";
  std::string small;
  for (const char byte : prompt) small += fmt::format("1\r\n{}\r\n", byte);
  for (const std::string& body :
       {small + "0\r\n\r\n",
        fmt::format("{:x};name=\"value\"\r\n{}\r\n0;last\r\nTrailer: 1\r\nOther: 2\r\n\r\n", prompt.size(),
                    prompt)}) {
    client.send(chunked(body));
    EXPECT_EQ(client.read_answer().parsed().at("count"), 60);
  }
}

TEST(Framing, ALargeBodyInSmallChunksIsTaken) {
  Service service({.server = {.max_body_bytes = 1 << 20}});
  std::string body = R"({"prompt": ")";
  body.append(500'000, 'a');
  body += "\"}";
  std::string chunks;
  for (size_t at = 0; at < body.size(); at += 7) {
    const std::string piece = body.substr(at, 7);
    chunks += fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
  }
  HttpClient client(service.port());
  client.send(chunked(chunks + "0\r\n\r\n"));
  EXPECT_EQ(client.read_answer().parsed().at("count"), 500'000);
}

// ---- Bodies ----

std::string announced(size_t bytes) {
  return fmt::format(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
      bytes);
}

TEST(Bodies, OfAllClientsHaveOneBudget) {
  Service service({.server = {.max_body_bytes = 1 << 20, .max_body_memory = 4 << 20}});
  std::vector<std::unique_ptr<HttpClient>> holders;
  const std::string most((1 << 20) - 1, ' ');
  int refused = 0;
  for (int i = 0; i < 8; ++i) {
    holders.push_back(std::make_unique<HttpClient>(service.port()));
    holders.back()->send(announced(1 << 20) + most);
    // What is refused is refused while it comes; the others wait for their last byte.
    const std::string said = holders.back()->read_rest(i < 2 ? 200ms : 1000ms);
    if (said.empty()) continue;
    ++refused;
    EXPECT_THAT(said, HasSubstr("HTTP/1.1 503 "));
    EXPECT_THAT(said, HasSubstr("Retry-After: 1"));
  }
  EXPECT_GE(refused, 1) << "half of the budget is two bodies, and one client may hold no more";
  EXPECT_EQ(service.post("/tokenize", R"({"prompt": "abc"})").status, 200) << "a small one has room";
  // The holders stand still, so that they make way for one that comes.
  std::string large = R"({"prompt": ")";
  large.append(900'000, 'a');
  large += "\"}";
  Answer answer;
  for (int i = 0; i < 100 && answer.status != 200; ++i) {
    answer = service.post("/tokenize", large);
    if (answer.status != 200) std::this_thread::sleep_for(100ms);
  }
  EXPECT_EQ(answer.status, 200);
}

/// Stops at each text until it is let go, and counts them.
class GatedTokenizer final : public test::LetterTokenizer {
 public:
  using test::LetterTokenizer::LetterTokenizer;
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
    {
      std::unique_lock lock(mutex_);
      begun_.emplace_back(text.substr(0, 1));
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return test::LetterTokenizer::encode(text, add_special_tokens);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_until_begun() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !begun_.empty(); });
  }
  /// The first letters of the texts, in order.
  std::vector<std::string> begun() const {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::vector<std::string> begun_;
  bool open_ = false;
};

std::string prompts(char letter, size_t count) {
  std::string out = R"({"max_tokens": 1, "prompt": [)";
  for (size_t i = 0; i < count; ++i) out += fmt::format("{}\"{}\"", i > 0 ? "," : "", letter);
  return out + "]}";
}

TEST(Bodies, OfAClientThatLeavesAreNotWorkedOff) {
  const auto tokenizer = std::make_shared<GatedTokenizer>(Service::kVocab);
  Service service({.server = {.worker_threads = 1}, .tokenizer = tokenizer});
  {
    HttpClient client(service.port());
    client.send(post_text("/v1/completions", prompts('a', 500)));
    tokenizer->wait_until_begun();
  }
  // By its answer the I/O thread has seen that the other client left.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(service.get("/health").status, 200);
  tokenizer->open();
  EXPECT_EQ(service.complete(prompts('b', 1)).status, 200);
  EXPECT_THAT(tokenizer->begun(), ElementsAre("a", "b"));
}

TEST(Bodies, OfOneClientDoNotHoldUpAnother) {
  const auto tokenizer = std::make_shared<GatedTokenizer>(Service::kVocab);
  ServiceOptions options{.server = {.worker_threads = 1}, .tokenizer = tokenizer};
  options.server.api_keys = test::keys_of({"one", "other"});
  Service service(std::move(options));
  constexpr size_t kMany = 10;
  std::vector<std::unique_ptr<HttpClient>> flood;
  for (size_t i = 0; i < kMany; ++i) {
    flood.push_back(std::make_unique<HttpClient>(service.port()));
    flood.back()->send(post_text("/v1/completions", prompts('a', 1), "Authorization: Bearer one\r\n"));
    if (i == 0) tokenizer->wait_until_begun();
  }
  HttpClient other(service.port());
  other.send(post_text("/v1/completions", prompts('b', 1), "Authorization: Bearer other\r\n"));
  // All of them have arrived before the answer to what is sent last.
  EXPECT_EQ(service.get("/health").status, 200);
  tokenizer->open();
  EXPECT_EQ(other.read_answer().status, 200);
  for (const auto& client : flood) EXPECT_EQ(client->read_answer().status, 200);
  const std::vector<std::string> order = tokenizer->begun();
  EXPECT_LE(std::find(order.begin(), order.end(), "b") - order.begin(), 2) << "it has the next turn";
}

TEST(Bodies, ThatAreFarLargerThanTheirTextAreRefused) {
  Service service({.server = {.max_body_bytes = 4 << 20, .max_json_bytes = 1 << 20}});
  const auto many = [](const std::string& piece) {
    std::string out = piece;
    for (int i = 1; i < 40'000; ++i) out += "," + piece;
    return out;
  };
  const std::string talk = R"({"messages": [{"role": "user", "content": "a"}], )";
  const std::string call = R"({"role": "assistant", "tool_calls": [{"type": "function", "function": )"
                           R"({"name": "f", "arguments": "[)";
  for (const auto& [path, body] : std::vector<std::pair<const char*, std::string>>{
           {"/v1/completions", R"({"prompt": [)" + many(R"({"":0})") + "]}"},
           {"/v1/completions", R"({"prompt": "a", "metadata": {"a": [)" + many("[[]]") + "]}}"},
           {"/tokenize", R"({"prompt": [)" + many("7,7,7,7") + "]}"},
           {"/detokenize", R"({"tokens": [)" + many("7,7,7,7") + "]}"},
           {"/v1/chat/completions", talk + R"("documents": [)" + many(R"({"":0})") + "]}"},
           {"/v1/chat/completions", R"({"messages": [)" + call + many(R"({\"\":0})") + R"(]"}}]}]})"}}) {
    HttpClient client(service.port());
    const Answer answer = client.post(path, body);
    EXPECT_EQ(answer.status, 413) << path << " " << answer.body.substr(0, 200);
    EXPECT_THAT(answer.body, HasSubstr("1048576 bytes")) << "the limit is named";
    EXPECT_EQ(client.post("/tokenize", R"({"prompt": "abc"})").status, 200)
        << "the connection is as good as before";
  }
}

TEST(Bodies, HeldForLongAreGivenBackBeforeTheAnswer) {
  Service service({.server = {.max_body_bytes = 1 << 20, .max_body_memory = 2 << 20},
                   .max_model_len = 2000,
                   .num_blocks = 1024,
                   .step_delay = 2 * kMillisecond});
  // Requests that run, with bodies of a megabyte, hold nothing of the budget.
  std::vector<std::unique_ptr<HttpClient>> clients;
  const std::string body =
      R"({"prompt": "a", "max_tokens": 1900, "stream": true})" + std::string(1'000'000, ' ');
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<HttpClient>(service.port()));
    clients.back()->send(post_text("/v1/completions", body));
    EXPECT_THAT(clients.back()->read_until("data: "), HasSubstr("200 OK"));
  }
}

// ---- Connections ----

TEST(Connections, BeyondTheMaximumAreAnsweredForThoseWhoWatch) {
  Service service({.server = {.max_connections = 2}, .step_delay = 2 * kMillisecond});
  std::vector<std::unique_ptr<HttpClient>> busy;
  for (int i = 0; i < 2; ++i) {
    busy.push_back(std::make_unique<HttpClient>(service.port()));
    busy.back()->send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "stream": true})"));
    EXPECT_THAT(busy.back()->read_until("data: "), HasSubstr("200 OK"));
  }
  for (const char* path : {"/health", "/ping", "/metrics"}) {
    HttpClient client(service.port());
    const Answer answer = client.get(path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.headers.at("connection"), "close");
  }
  const Answer refused = service.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  busy.clear();
  ASSERT_TRUE(service.wait_until_quiet());
  Answer answer;
  for (int i = 0; i < 1000 && answer.status != 200; ++i) answer = service.complete(R"({"prompt": "a"})");
  EXPECT_EQ(answer.status, 200) << "a place that is free again is given away";
}

TEST(Connections, TheOneThatHasSentNothingMakesWayAndThenTheIdleOne) {
  Service service({.server = {.max_connections = 3}});
  HttpClient idle(service.port());
  ASSERT_EQ(idle.get("/version").status, 200);
  HttpClient silent(service.port());
  HttpClient working(service.port());
  working.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n");
  // No earlier than after a second, until which the new one is told 503.
  const auto come_in = [&service](HttpClient& client) {
    unsigned status = 0;
    for (int i = 0; i < 200 && status != 200; ++i) {
      if (i > 0) std::this_thread::sleep_for(50ms);
      HttpClient again(service.port());
      const Answer answer = i == 0 ? client.get("/version") : again.get("/version");
      status = answer.status;
    }
    return status;
  };
  HttpClient first(service.port());
  EXPECT_EQ(come_in(first), 200U);
  EXPECT_EQ(silent.read_answer().status, 503);
  EXPECT_TRUE(silent.closed_by_server());
  working.send(R"({"prompt":"ab"})");
  EXPECT_EQ(working.read_answer().status, 200);
  EXPECT_EQ(working.get("/version").status, 200);
}

TEST(Connections, APartOfAHeadHoldsNoPlace) {
  Service service({.server = {.max_connections = 3}});
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(std::make_unique<HttpClient>(service.port()));
    slow.back()->send("GET /version HTTP/1.1\r\nHost: x\r\n");
  }
  unsigned status = 0;
  for (int i = 0; i < 100 && status != 200; ++i) {
    if (i > 0) std::this_thread::sleep_for(50ms);
    status = service.get("/version").status;
  }
  EXPECT_EQ(status, 200U);
  unsigned told = 0;
  for (const auto& client : slow) told += client->read_rest(100ms).starts_with("HTTP/1.1 503 ") ? 1 : 0;
  EXPECT_GE(told, 1U);
}

/// The status of a request that comes again and again, as long as it is told 503 and at most for some time.
unsigned insist(Service& service) {
  unsigned status = 0;
  for (int i = 0; i < 200 && status != 200; ++i) {
    if (i > 0) std::this_thread::sleep_for(50ms);
    status = service.post("/tokenize", R"({"prompt": "abc"})").status;
  }
  return status;
}

TEST(Connections, ABodyThatDoesNotComeHoldsNoPlace) {
  // Of any size: what is small is in no budget for bodies.
  for (const size_t size : {1000, 10'000'000}) {
    Service service({.server = {.max_connections = 3}});
    std::vector<std::unique_ptr<HttpClient>> slow;
    for (int i = 0; i < 3; ++i) {
      slow.push_back(std::make_unique<HttpClient>(service.port()));
      slow.back()->send(announced(size) + "{");
    }
    EXPECT_EQ(insist(service), 200U) << size;
    unsigned told = 0;
    for (const auto& client : slow) told += client->read_rest(100ms).starts_with("HTTP/1.1 503 ") ? 1 : 0;
    EXPECT_GE(told, 1U) << size;
  }
}

TEST(Connections, WhoReadsNothingHoldsNoPlace) {
  Service service({.server = {.max_connections = 3, .send_buffer_bytes = 4096}});
  std::vector<std::unique_ptr<HttpClient>> deaf;
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (int i = 0; i < 3; ++i) {
    deaf.push_back(std::make_unique<HttpClient>(service.port(), 2048));
    deaf.back()->send(requests);
  }
  EXPECT_EQ(insist(service), 200U);  // long before the time that a write may take
}

TEST(Connections, TheSlowestBodyMakesWayAndTheUploadArrives) {
  Service service({.server = {.max_connections = 3}, .step_delay = 20 * kMillisecond});
  const std::string body = R"({"prompt": ")" + std::string(200'000, 'a') + "\"}";
  HttpClient upload(service.port());
  upload.send(announced(body.size()) + body.substr(0, 100'000));
  HttpClient drips(service.port());
  drips.send(announced(1000) + "{");
  HttpClient idle(service.port());
  ASSERT_EQ(idle.get("/version").status, 200);
  std::this_thread::sleep_for(100ms);  // it has had its time, however late it came
  // First the one that loses nothing by it. Its place is taken by one that does not make way: by the same
  // connection that got it, since the server may notice late that another has ended.
  std::unique_ptr<HttpClient> busy;
  unsigned status = 0;
  for (int i = 0; i < 200 && status != 200; ++i) {
    if (i > 0) std::this_thread::sleep_for(50ms);
    busy = std::make_unique<HttpClient>(service.port());
    status = busy->post("/tokenize", R"({"prompt": "abc"})").status;
  }
  EXPECT_EQ(status, 200U);
  EXPECT_TRUE(idle.closed_by_server());
  busy->send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "stream": true})"));
  const std::string begun = busy->read_until("\r\n\r\n");
  EXPECT_THAT(begun, HasSubstr("200 OK"));
  EXPECT_EQ(insist(service), 200U);
  EXPECT_EQ(drips.read_answer().status, 503);
  upload.send(body.substr(100'000));
  EXPECT_EQ(upload.read_answer().parsed().at("count"), 200'000);
}

TEST(Connections, ThoseToldThatThereIsNoPlaceAreCounted) {
  testing::internal::CaptureStderr();
  {
    Service service(
        {.server = {.max_connections = 5, .max_connections_per_client = 1}, .step_delay = 2 * kMillisecond});
    HttpClient busy(service.port());
    busy.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "stream": true})"));
    EXPECT_THAT(busy.read_until("data: "), HasSubstr("200 OK"));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(service.get("/version").status, 503);
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("refused with status 503 because one address had its share of connections: 3 connections; "
                "--max-connections-per-client (1)"));
  testing::internal::CaptureStderr();
  {
    Service service({.server = {.max_connections = 1}, .step_delay = 2 * kMillisecond});
    HttpClient busy(service.port());
    busy.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "stream": true})"));
    EXPECT_THAT(busy.read_until("data: "), HasSubstr("200 OK"));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(service.get("/version").status, 503);
    EXPECT_EQ(service.get("/health").status, 200) << "which is not counted";
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("refused with status 503 because all connections were in use: 4 connections; "
                              "--max-connections (1)"));
}

TEST(Connections, ThousandIdleOnesDoNotHideTheServersHealth) {
  Service service({.server = {.max_connections = 100}});
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(std::make_unique<HttpClient>(service.port()));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(service.get("/health").status, 200);
    idle.push_back(std::make_unique<HttpClient>(service.port()));
  }
}

TEST(Connections, OfOneClientHaveAShare) {
  Service service({.server = {.max_connections = 8, .max_connections_per_client = 3}});
  std::vector<std::unique_ptr<HttpClient>> own;
  for (int i = 0; i < 3; ++i) {
    own.push_back(std::make_unique<HttpClient>(service.port()));
    EXPECT_EQ(own.back()->get("/version").status, 200);
  }
  EXPECT_EQ(service.get("/version").status, 503);
  EXPECT_EQ(service.get("/health").status, 200);
  own.clear();
  unsigned status = 0;
  for (int i = 0; i < 1000 && status != 200; ++i) status = service.get("/version").status;
  EXPECT_EQ(status, 200U);
}

TEST(Connections, FarBeyondTheMaximumAllGetAnAnswer) {
  Service service(
      {.server = {.max_connections = 20}, .max_num_seqs = 4, .max_waiting = 8, .step_delay = kMillisecond});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 500; ++i) {
    clients.push_back(std::make_unique<HttpClient>(service.port()));
    clients.back()->send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 5, "stream": true})"));
  }
  int good = 0;
  for (const auto& client : clients) {
    const Answer answer = client->read_answer();
    EXPECT_THAT(answer.status, AnyOf(200U, 429U, 503U));
    EXPECT_TRUE(answer.complete);
    if (answer.status == 200) {
      ++good;
    } else {
      EXPECT_TRUE(answer.headers.contains("retry-after"));
    }
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace quire::serve
