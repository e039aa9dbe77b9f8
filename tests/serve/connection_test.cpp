// What clients can do wrong, and what becomes of their requests.
#include <future>
#include <signal.h>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/serve/service.h"
#include "tests/support/units.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::HttpClient;
using test::post_text;
using test::Service;
using testing::HasSubstr;
using namespace std::chrono_literals;

using test::kMillisecond;
const std::string kLong = R"({"prompt": "a", "max_tokens": 500})";
const std::string kLongStream = R"({"prompt": "a", "max_tokens": 500, "stream": true})";

test::ServiceOptions slow_steps() { return {.step_delay = 2 * kMillisecond}; }

TEST(Connection, StaysForMoreRequests) {
  Service service;
  HttpClient client(service.port());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.get("/health").status, 200);
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "a"})").status, 200);
    const Answer stream = client.post("/v1/completions", R"({"prompt": "a", "stream": true})");
    EXPECT_TRUE(stream.complete);
    EXPECT_EQ(client.get("/nothing").status, 404);
    EXPECT_EQ(client.post("/v1/completions", "{").status, 400);
  }
  EXPECT_EQ(client.get("/health", "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST(Connection, PipelinedRequestsAreAnsweredInOrder) {
  Service service;
  HttpClient client(service.port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += post_text("/v1/completions", fmt::format(R"({{"prompt": "a", "max_tokens": {}}})", i + 1));
    all += "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  ASSERT_TRUE(client.send(all));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.read_answer().parsed().at("usage").at("completion_tokens"), i + 1);
    EXPECT_EQ(client.read_answer().parsed().at("version"), "1.2.3");
  }
}

TEST(Connection, Http10EndsWithTheAnswer) {
  Service service;
  HttpClient client(service.port());
  const std::string body = R"({"prompt": "a", "stream": true, "max_tokens": 3})";
  client.send(fmt::format(
      "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body));
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  for (const char* more : {"", "Connection: keep-alive\r\n"}) {
    HttpClient whole(service.port());
    whole.send(fmt::format("GET /health HTTP/1.0\r\n{}\r\n", more));
    const Answer health = whole.read_answer();
    EXPECT_EQ(health.status, 200);
    EXPECT_EQ(health.headers.at("connection"), "close");
    EXPECT_TRUE(whole.closed_by_server());
  }
}

TEST(Connection, ARequestNamesItsHost) {
  Service service;
  for (const char* head :
       {"GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "GET /health HTTP/1.1\r\nHost:\r\n\r\n",
        "GET /health HTTP/1.0\r\nHost: \t\r\n\r\n", "GET http:///health HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    HttpClient client(service.port());
    client.send(head);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 400) << head;
    EXPECT_THAT(answer.body, HasSubstr("Host"));
    EXPECT_TRUE(client.closed_by_server());
  }
  HttpClient old(service.port());
  old.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_answer().status, 200);
}

TEST(Connection, AHeaderThatDecidesStandsThereOnce) {
  Service service;
  for (const char* header : {"Origin: http://x", "Authorization: Bearer a", "Content-Type: application/json",
                             "Content-Encoding: identity"}) {
    HttpClient client(service.port());
    client.send(fmt::format("GET /version HTTP/1.1\r\nHost: x\r\n{0}\r\nX: y\r\n{0}\r\n\r\n", header));
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 400) << header;
    EXPECT_THAT(answer.body, HasSubstr("two")) << header;
    EXPECT_EQ(service.get("/version", fmt::format("{}\r\n", header)).status, 200) << header;
  }
}

TEST(Connection, ChunkedAndAnnouncedBodies) {
  Service service;
  HttpClient client(service.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "e\r\n{\"prompt\": \"ab\r\n3\r\nc\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_answer().parsed().at("count"), 3);
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 16\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(client.read_answer(false).status, 100);
  client.send(R"({"prompt":"abc"})");
  EXPECT_EQ(client.read_answer().parsed().at("count"), 3);
}

/// Of two lengths, a proxy before this server may have believed the other.
TEST(Connection, ABodyHasOneLength) {
  Service service;
  const std::string body = R"({"prompt":"abc"})";
  const std::string chunked = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
  for (const char* framing :
       {"Content-Length: 16\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 16", "Content-Length: 16\r\nContent-Length: 17",
        "Content-Length: 16, 17", "Content-Length: -1", "Content-Length: 0x10",
        // What does not end in chunks has no end that both sides see.
        "Transfer-Encoding:", "Transfer-Encoding: gzip", "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked", "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Content-Length: 16\r\nTransfer-Encoding: identity"}) {
    HttpClient client(service.port());
    client.send(fmt::format(
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}\r\n\r\n{}", framing,
        std::string_view(framing).find("chunked") == std::string_view::npos ? body : chunked));
    EXPECT_EQ(client.read_answer().status, 400) << framing;
    EXPECT_TRUE(client.closed_by_server()) << framing;
  }
}

TEST(Connection, TooLargeARequestIsRefused) {
  Service service({.server = {.max_body_bytes = 1000}});
  {
    HttpClient client(service.port());
    const Answer answer = client.get("/health", "X: " + std::string(20000, 'a') + "\r\n");
    EXPECT_EQ(answer.status, 431);
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_EQ(service.get("/health", "X: " + std::string(15000, 'a') + "\r\n").status, 200);
  EXPECT_EQ(service.get("/" + std::string(20000, 'a')).status, 431);
  {
    // By what is announced, before anything of it has come.
    HttpClient client(service.port());
    client.send(
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        "1001\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 413);
  }
  {
    HttpClient client(service.port());
    client.send(
        "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        "99999999999999999999999\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 400);
  }
  // A client that sends it all first can still read the answer.
  EXPECT_EQ(service.post("/tokenize", std::string(4'000'000, 'a')).status, 413);
  HttpClient client(service.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3e9\r\n" +
      std::string(1001, 'a') + "\r\n");
  EXPECT_EQ(client.read_answer().status, 413);
}

TEST(Connection, ABodyThatNobodyReadsIsNotWaitedFor) {
  Service service({.server = {.api_keys = test::keys_of({"secret"})}});
  const auto head = [](std::string_view request, std::string_view framing) {
    return fmt::format("{} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{}\r\n\r\n", request,
                       framing);
  };
  for (const char* framing : {"Content-Length: 100", "Transfer-Encoding: chunked"}) {
    for (const auto& [request, status] : {std::pair("GET /health", 200), std::pair("POST /tokenize", 401)}) {
      HttpClient client(service.port());
      client.send(head(request, framing));
      const Answer answer = client.read_answer();
      EXPECT_EQ(answer.status, status);
      EXPECT_EQ(answer.headers.at("connection"), "close");
      client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
      EXPECT_EQ(client.read_rest(), "") << request << ": a body is not taken for a request";
    }
  }
}

TEST(Connection, SlowRequestsAreGivenUp) {
  Service service({.server = {.first_byte_timeout = 200 * kMillisecond,
                              .idle_timeout = 200 * kMillisecond,
                              .header_timeout = 100 * kMillisecond,
                              .body_timeout = 100 * kMillisecond}});
  HttpClient silent(service.port());
  EXPECT_EQ(silent.read_answer().status, 408);
  EXPECT_TRUE(silent.closed_by_server());
  HttpClient idle(service.port());
  ASSERT_EQ(idle.get("/health").status, 200);
  EXPECT_EQ(idle.read_rest(), "") << "a connection that is idle between requests ends without a word";
  HttpClient header(service.port());
  header.send("GET /health HTT");
  EXPECT_EQ(header.read_answer().status, 408);
  HttpClient body(service.port());
  body.send(
      "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(body.read_answer().status, 408);
  EXPECT_TRUE(body.closed_by_server());
}

TEST(Connection, TruncatedRequestsHarmNobody) {
  Service service;
  const std::string request = post_text("/v1/completions", R"({"prompt": "a"})");
  for (size_t length = 0; length < request.size(); length += 3) {
    HttpClient client(service.port());
    client.send(request.substr(0, length));
    client.shutdown_send();
    const std::string rest = client.read_rest();
    EXPECT_EQ(rest.find("200 OK"), std::string::npos);
  }
  EXPECT_EQ(service.get("/health").status, 200);
}

TEST(Connection, GarbageIsRefused) {
  Service service;
  SplitMix64 random(7);
  for (int i = 0; i < 400; ++i) {
    HttpClient client(service.port());
    std::string bytes;
    if (i % 2 == 0) bytes = post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 1})");
    for (uint64_t k = random.below(300) + 1; k > 0; --k) {
      const char byte = static_cast<char>(random.next());
      if (i % 2 == 0) {
        // A request with some of its bytes changed.
        if (k % 50 == 0) bytes[random.below(bytes.size())] = byte;
      } else {
        bytes += byte;
      }
    }
    client.send(bytes);
    client.shutdown_send();
    const std::string answer = client.read_rest();
    if (!answer.empty()) {
      EXPECT_THAT(answer, HasSubstr("HTTP/1.1 "));
    }
  }
  EXPECT_EQ(service.get("/health").status, 200);
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Connection, AClientThatLeavesFreesItsRequest) {
  Service service(slow_steps());
  for (const std::string& body : {kLong, kLongStream}) {
    HttpClient client(service.port());
    client.send(post_text("/v1/completions", body));
    ASSERT_TRUE(service.wait_until_running());
    const uint64_t before = service.executor().steps();
    client.close();
    ASSERT_TRUE(service.wait_until_quiet());
    EXPECT_LT(service.executor().steps() - before, 200U) << "it was to make 500 steps";
  }
  EXPECT_EQ(service.engine().stats().requests_finished[static_cast<int>(control::FinishReason::kAbort)], 2U);
}

TEST(Connection, AClientThatLeavesTheQueueIsForgotten) {
  Service service({.max_num_seqs = 1, .step_delay = 2 * kMillisecond});
  HttpClient running(service.port());
  running.send(post_text("/v1/completions", kLong));
  ASSERT_TRUE(service.wait_until_running());
  HttpClient waiting(service.port());
  waiting.send(post_text("/v1/completions", kLong));
  ASSERT_TRUE(service.wait_for([](const control::StepStats& now) { return now.waiting == 1; }));
  waiting.close();
  EXPECT_TRUE(
      service.wait_for([](const control::StepStats& now) { return now.running == 1 && now.waiting == 0; }));
  EXPECT_EQ(running.read_answer().parsed().at("usage").at("completion_tokens"), 500);
}

TEST(Connection, CutStreamsLeaveTheOthersAlone) {
  Service service({.num_blocks = 2048, .step_delay = kMillisecond});
  const auto body = [](int i, bool stream) {
    return fmt::format(R"({{"prompt": "abc", "seed": {}, "max_tokens": 100, "stream": {}}})", i, stream);
  };
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<HttpClient>(service.port()));
    clients.back()->send(post_text("/v1/completions", body(i, true)));
  }
  for (int i = 0; i < 24; i += 3) {
    EXPECT_THAT(clients[i]->read_until("data: "), HasSubstr("data: "));
    clients[i]->close();
  }
  for (int i = 0; i < 24; ++i) {
    if (i % 3 == 0) continue;
    const Answer stream = clients[i]->read_answer();
    EXPECT_TRUE(stream.complete);
    std::string text;
    for (size_t at = 0; (at = stream.body.find("\"text\":\"", at)) != std::string::npos;) {
      at += 8;
      text += stream.body.substr(at, stream.body.find('"', at) - at);
    }
    EXPECT_EQ(json::value(text), service.complete(body(i, false)).parsed().at("choices").at(0).at("text"));
  }
  EXPECT_TRUE(service.wait_until_quiet());
}

TEST(Connection, ASlowReaderIsCutOff) {
  Service service({.server = {.max_stream_backlog_bytes = 20'000, .send_buffer_bytes = 4096},
                   .max_model_len = 20000,
                   .num_blocks = 2048});
  HttpClient client(service.port(), 2048);
  client.send(post_text("/v1/completions",
                        R"({"prompt": "a", "max_tokens": 15000, "stream": true, "logprobs": 20})"));
  const auto aborted = [&service](const control::StepStats&) {
    return service.engine().stats().requests_finished[static_cast<int>(control::FinishReason::kAbort)] == 1;
  };
  EXPECT_TRUE(service.wait_for(aborted));
  EXPECT_TRUE(service.wait_until_quiet());
  EXPECT_EQ(service.get("/health").status, 200);
}

TEST(Connection, AStuckReaderRunsIntoTheTimeout) {
  Service service({.server = {.send_buffer_bytes = 4096, .write_timeout = 200 * kMillisecond},
                   .max_model_len = 20000,
                   .num_blocks = 2048,
                   .step_delay = kMillisecond / 10});
  HttpClient client(service.port(), 2048);
  client.send(post_text("/v1/completions",
                        R"({"prompt": "a", "max_tokens": 15000, "stream": true, "logprobs": 20})"));
  ASSERT_TRUE(service.wait_until_running());
  EXPECT_TRUE(service.wait_until_quiet());
  EXPECT_EQ(service.engine().stats().requests_finished[static_cast<int>(control::FinishReason::kAbort)], 1U);
}

// ---- Stopping ----

TEST(Stopping, RunningRequestsFinish) {
  Service service(slow_steps());
  HttpClient stream(service.port());
  HttpClient whole(service.port());
  HttpClient idle(service.port());
  ASSERT_EQ(idle.get("/health").status, 200);
  stream.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 100, "stream": true})"));
  whole.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 100})"));
  ASSERT_TRUE(service.wait_until_running(2));
  EXPECT_TRUE(service.server().stop(20 * kSecond));
  EXPECT_TRUE(idle.closed_by_server());
  const Answer streamed = stream.read_answer();
  EXPECT_TRUE(streamed.complete);
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
  const Answer answer = whole.read_answer();
  EXPECT_EQ(answer.parsed().at("usage").at("completion_tokens"), 100);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(whole.closed_by_server());
  EXPECT_THROW(HttpClient(service.port()), std::runtime_error);
}

TEST(Stopping, WhatTakesTooLongIsAborted) {
  Service service(slow_steps());
  HttpClient client(service.port());
  client.send(post_text("/v1/completions", kLong));
  ASSERT_TRUE(service.wait_until_running());
  EXPECT_FALSE(service.server().stop(50 * kMillisecond));
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.parsed().at("error").at("code"), "shutting_down");
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
}

TEST(Stopping, AStreamThatTakesTooLongEndsWithAnError) {
  Service service(slow_steps());
  HttpClient client(service.port());
  client.send(post_text("/v1/completions", kLongStream));
  client.read_until("data: ");
  EXPECT_FALSE(service.server().stop(50 * kMillisecond));
  const Answer answer = client.read_answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr("\"code\":\"shutting_down\""));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(answer.body.find("\"finish_reason\":\""), std::string::npos) << "it was not finished";
}

TEST(Stopping, CanBeCutShort) {
  Service service(slow_steps());
  HttpClient client(service.port());
  client.send(post_text("/v1/completions", kLongStream));
  ASSERT_TRUE(service.wait_until_running());
  auto stopped = std::async(std::launch::async, [&] { return service.server().stop(600 * kSecond); });
  std::this_thread::sleep_for(20ms);
  service.server().abort_all();
  ASSERT_EQ(stopped.wait_for(20s), std::future_status::ready);
  EXPECT_FALSE(stopped.get());
  const Answer answer = client.read_answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr("\"code\":\"shutting_down\""));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST(Stopping, ByASignal) {
  Service service(slow_steps());
  HttpClient client(service.port());
  client.send(post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 50})"));
  ASSERT_TRUE(service.wait_until_running());
  // The handler must be in place before the signal comes: until then the default action would end the test.
  const auto sent = std::async(std::launch::async, [waiting = pthread_self()] {
    struct sigaction now {};
    do {
      std::this_thread::sleep_for(1ms);
      sigaction(SIGTERM, nullptr, &now);
    } while (now.sa_handler == SIG_DFL);
    pthread_kill(waiting, SIGTERM);
  });
  EXPECT_TRUE(service.server().run_until_signal(20 * kSecond));
  EXPECT_EQ(client.read_answer().parsed().at("usage").at("completion_tokens"), 50);
}

TEST(Stopping, AServerThatNeverStartedEnds) {
  test::LetterTokenizer tokenizer(16);
  test::FakeExecutor executor({.vocab_size = 16});
  SteadyClock clock;
  engine::EngineConfig config;
  config.scheduler.num_blocks = 256;
  config.scheduler.max_model_len = 64;
  config.vocab_size = 16;
  engine::Engine engine(config, tokenizer, executor, clock);
  const chat::ChatTemplates no_templates;
  const ServedModel model{.tokenizer = tokenizer, .chat_templates = no_templates};
  { Server server({.served_names = {"m"}}, engine, model, {}); }
  EXPECT_THROW(Server({.served_names = {}}, engine, model, {}), Error);
  EXPECT_THROW(Server({.host = "", .served_names = {"m"}}, engine, model, {}), Error);
  const ApiKey twice = make_api_key("a", "k");
  EXPECT_THROW(Server({.served_names = {"m"}, .api_keys = {twice, twice}}, engine, model, {}), Error);
  Service taken;
  Server server({.port = taken.port(), .served_names = {"m"}}, engine, model, {});
  EXPECT_THROW(server.start(), Error);
  Server nowhere({.host = "256.0.0.1", .served_names = {"m"}}, engine, model, {});
  EXPECT_THROW(nowhere.start(), Error);
}

}  // namespace
}  // namespace quire::serve
