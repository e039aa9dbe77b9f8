// Who may use the server: keys, the file of keys, web pages.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "serve/auth.h"
#include "serve/key_file.h"
#include "serve/web_access.h"
#include "tests/serve/service.h"
#include "tests/support/data.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::HttpClient;
using test::keys_of;
using test::Service;
using testing::HasSubstr;

// ---- Keys ----

TEST(ApiKeys, OneOfThemIsNeeded) {
  const ApiKeys keys(keys_of({"alpha", "beta"}));
  EXPECT_TRUE(keys.required());
  ASSERT_NE(keys.find("Bearer alpha"), nullptr);
  ASSERT_NE(keys.find("bearer beta"), nullptr);
  EXPECT_EQ(keys.find("Bearer alpha")->name, "alpha");
  EXPECT_NE(keys.find("Bearer alpha")->tenant(), keys.find("Bearer beta")->tenant());
  for (const char* wrong :
       {"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "Basic alpha"}) {
    EXPECT_EQ(keys.find(wrong), nullptr) << wrong;
  }
  EXPECT_FALSE(ApiKeys({}).required());
}

TEST(ApiKeys, AreComparedWhole) {
  const ApiKeys keys(keys_of({"alpha"}));
  const KeyDigest known = make_api_key("known", "alpha").digest;
  // Others whose digests begin as the known one does.
  int found = 0;
  for (int i = 0; found < 3; ++i) {
    const std::string other = fmt::format("key-{}", i);
    const KeyDigest digest = make_api_key("other", other).digest;
    if (!std::equal(digest.begin(), digest.begin() + 1, known.begin())) continue;
    ++found;
    EXPECT_EQ(keys.find("Bearer " + other), nullptr) << other;
  }
}

TEST(ApiKeys, WhatNoClientCouldSendIsRefused) {
  for (const char* wrong : {"", "a b", " a", "a\n", "\xc3\xa4"})
    EXPECT_THROW(make_api_key("n", wrong), Error);
  try {
    make_api_key("alice", "my secret");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("alice"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("secret")));
  }
  EXPECT_THROW(ApiKeys({make_api_key("a", "k"), make_api_key("b", "k")}), Error);
}

TEST(BlockSalt, SeparatesTenantsUsersAndSalts) {
  EXPECT_EQ(block_salt(0, "", ""), 0U);
  EXPECT_NE(block_salt(5, "kim", "s"), block_salt(5, "", "s"));
  EXPECT_NE(block_salt(5, "", ""), block_salt(6, "", ""));
  EXPECT_NE(block_salt(0, "kim", ""), block_salt(0, "", "kim"));
  EXPECT_NE(block_salt(0, "a", "bc"), block_salt(0, "ab", "c"));
  EXPECT_NE(block_salt(0, "", "x"), 0U);
}

// Of "beta".
constexpr const char* kBetaDigest = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";

class KeyFile : public testing::Test {
 protected:
  std::vector<ApiKey> read(std::string_view text,
                           std::filesystem::perms mode = std::filesystem::perms::owner_read |
                                                         std::filesystem::perms::owner_write) {
    std::ofstream(path_) << text;
    std::filesystem::permissions(path_, mode);
    return read_key_file(path_);
  }
  std::string refusal(std::string_view text,
                      std::filesystem::perms mode = std::filesystem::perms::owner_read |
                                                    std::filesystem::perms::owner_write) {
    try {
      read(text, mode);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }

  std::filesystem::path path_ = test::temp_dir() / "keys";
};

TEST_F(KeyFile, HoldsKeysAndDigests) {
  const ApiKeys keys(read(
      fmt::format("# who may\n\nalice:alpha\r\n  bob@example.com : sha256 : {}  \n\t# end", kBetaDigest)));
  ASSERT_NE(keys.find("Bearer alpha"), nullptr);
  EXPECT_EQ(keys.find("Bearer alpha")->name, "alice");
  ASSERT_NE(keys.find("Bearer beta"), nullptr);
  EXPECT_EQ(keys.find("Bearer beta")->name, "bob@example.com");
  EXPECT_EQ(keys.find(fmt::format("Bearer {}", kBetaDigest)), nullptr) << "a digest is no key";
}

TEST_F(KeyFile, RefusesWhatItDoesNotKnow) {
  const std::string path = path_.string();
  EXPECT_EQ(refusal("a:k\nsecret\n"), path + ": line 2: neither NAME:KEY nor NAME:sha256:HEX");
  EXPECT_THAT(refusal("a:secret:rpm=5\n"), HasSubstr("line 1: an unknown column after NAME:KEY"));
  EXPECT_THAT(refusal(fmt::format("a:sha256:{}:rpm=5\n", kBetaDigest)),
              HasSubstr("line 1: an unknown column"));
  EXPECT_THAT(refusal("a:sha256:abc\n"), HasSubstr("64 hex digits"));
  EXPECT_THAT(refusal(fmt::format("a:sha256:{}g\n", std::string(63, 'a'))), HasSubstr("64 hex digits"));
  EXPECT_THAT(refusal("a:sha256\n"), HasSubstr("64 hex digits"));
  EXPECT_THAT(refusal("a:\n"), HasSubstr("line 1: a: the key is empty"));
  EXPECT_THAT(refusal("a:secret # of Ann\n"), HasSubstr("without spaces"));
  EXPECT_THAT(refusal(":k\n"), HasSubstr("a name is 1 to 64"));
  EXPECT_THAT(refusal("a b:k\n"), HasSubstr("a name is 1 to 64"));
  EXPECT_THAT(refusal("a:k\n\na:l\n"), HasSubstr("line 3: the name a is already on line 1"));
  EXPECT_THAT(refusal(fmt::format("a:beta\nb:sha256:{}\n", kBetaDigest)),
              HasSubstr("line 2: this key is already on line 1"));
  EXPECT_EQ(refusal("# nobody\n"), path + ": it contains no key") << "the server would be open to all";
  EXPECT_THAT(refusal(std::string(1100000, '\n')), HasSubstr("1 MiB"));
  EXPECT_THAT(refusal("a:secret:x\na:secret y\n"), testing::Not(HasSubstr("secret")));
  EXPECT_THROW(read_key_file(test::temp_dir() / "none"), Error);
  EXPECT_THROW(read_key_file(test::temp_dir()), Error);
}

TEST_F(KeyFile, IsNobodyElsesToReadOrWrite) {
  using std::filesystem::perms;
  const perms own = perms::owner_read | perms::owner_write;
  const auto said = [&](std::string_view text, perms mode) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(read(text, mode).size(), 1U);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said("a:secret", own), "");
  EXPECT_THAT(said("a:secret", own | perms::others_read), HasSubstr("other users can read the keys"));
  EXPECT_THAT(said("a:secret", own | perms::group_read), HasSubstr("chmod 600"));
  EXPECT_EQ(said(fmt::format("a:sha256:{}", kBetaDigest), own | perms::others_read), "") << "hashed";
  for (const unsigned mode : {0664U, 0620U, 0602U, 0666U}) {
    EXPECT_THAT(refusal("a:secret", static_cast<perms>(mode)),
                testing::AllOf(HasSubstr(path_.string()), HasSubstr("could add a key (chmod 600")));
  }
  std::filesystem::permissions(path_, own);
  if (geteuid() != 0 || chown(path_.c_str(), 65534, 65534) != 0) return;
  EXPECT_THAT(refusal("a:secret"), HasSubstr("it belongs to another user (uid 65534)"));
}

// ---- Web pages ----

TEST(WebAccess, OnLoopbackItsNamesAlone) {
  const WebAccess web({}, {});
  for (const char* own : {"localhost", "localhost:8000", "LOCALHOST.", "a.localhost:1", "127.0.0.1",
                          "127.0.0.1:99", "127.1.2.3:8000", "[::1]", "[::1]:8000", ""}) {
    EXPECT_TRUE(web.allows_host(own)) << own;
  }
  for (const char* foreign :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
        "192.168.0.1", "[2001:db8::1]:80", "evil-localhost", "localhost@evil.example"}) {
    EXPECT_FALSE(web.allows_host(foreign)) << foreign;
  }
}

TEST(WebAccess, BeyondLoopbackAnyNameUnlessListed) {
  WebAccess open({}, {});
  open.bind(false);
  EXPECT_TRUE(open.allows_host("llm.example:8000"));
  WebAccess listed({}, {"llm.example", "other.example:8000", "::2"});
  listed.bind(false);
  for (const char* own : {"llm.example", "LLM.example.:1", "other.example:8000", "localhost:8000"}) {
    EXPECT_TRUE(listed.allows_host(own)) << own;
  }
  for (const char* foreign : {"other.example", "other.example:80", "evil.example"}) {
    EXPECT_FALSE(listed.allows_host(foreign)) << foreign;
  }
  // Probes of an orchestrator go by address.
  EXPECT_TRUE(listed.allows_host("10.1.2.3:8000"));
  EXPECT_TRUE(listed.allows_host("[2001:db8::1]:8000"));
  listed.bind(true);
  EXPECT_FALSE(listed.allows_host("10.1.2.3:8000"));
  EXPECT_TRUE(listed.allows_host("[::2]:8000"));
  EXPECT_TRUE(WebAccess({}, {"a", "*"}).allows_host("evil.example"));
}

TEST(WebAccess, ItsOwnPagesAndTheListedOnes) {
  const WebAccess web({"https://app.example", "HTTP://ui.example:3000", "http://old.example:80"}, {});
  EXPECT_TRUE(web.allows_origin("", "localhost:8000"));
  EXPECT_TRUE(web.allows_origin("http://localhost:8000", "localhost:8000"));
  EXPECT_TRUE(web.allows_origin("https://LLM.example", "llm.example")) << "behind a proxy with TLS";
  EXPECT_TRUE(web.allows_origin("https://llm.example", "llm.example:443"));
  EXPECT_TRUE(web.allows_origin("https://app.example", "localhost:8000"));
  EXPECT_TRUE(web.allows_origin("http://ui.example:3000", "localhost:8000"));
  EXPECT_TRUE(web.allows_origin("http://old.example", "localhost:8000"));
  for (const char* foreign :
       {"http://localhost:3000", "http://localhost", "http://app.example", "null", "http://ui.example",
        "https://app.example.evil.example", "localhost:8000", "*"}) {
    EXPECT_FALSE(web.allows_origin(foreign, "localhost:8000")) << foreign;
  }
  EXPECT_TRUE(WebAccess({"*"}, {}).allows_origin("null", "a"));
  EXPECT_TRUE(WebAccess({"null"}, {}).allows_origin("null", "a"));
}

TEST(WebAccess, RefusesWhatIsNoOriginOrHost) {
  for (const char* wrong :
       {"", "app.example", "https://", "https://app.example/", "https://a b", "[\"*\"]"}) {
    EXPECT_THROW(WebAccess({wrong}, {}), Error) << wrong;
  }
  for (const char* wrong : {"", "http://a", "a/b", "*.example"})
    EXPECT_THROW(WebAccess({}, {wrong}), Error) << wrong;
}

std::string code_of(const Answer& answer) {
  const json::value body = answer.parsed();
  EXPECT_EQ(body.at("error").at("type"), "invalid_request_error");
  EXPECT_TRUE(body.at("error").at("param").is_null());
  return std::string(body.at("error").at("code").as_string());
}

Answer ask(Service& service, std::string_view head) {
  HttpClient client(service.port());
  client.send(head);
  return client.read_answer();
}

TEST(Door, AForeignPageIsRefusedBeforeItsBodyIsRead) {
  Service service;
  // 100 of 1,000,000 bytes: an answer comes without the rest.
  const Answer post = ask(service,
                          "POST /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n"
                          "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n" +
                              std::string(100, ' '));
  EXPECT_EQ(post.status, 403);
  EXPECT_EQ(code_of(post), "origin_not_allowed");
  EXPECT_THAT(post.body, HasSubstr("--allowed-origins"));
  EXPECT_FALSE(post.headers.contains("access-control-allow-origin"));
  for (const char* path : {"/v1/models", "/health", "/metrics", "/nothing"}) {
    const Answer get = service.get(path, "Origin: null\r\n");
    EXPECT_EQ(get.status, 403) << path;
    EXPECT_FALSE(get.headers.contains("access-control-allow-origin")) << path;
  }
  const Answer preflight =
      ask(service,
          "OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n"
          "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(preflight.status, 403);
  const Answer own = service.get("/v1/models", "Origin: http://x\r\n");
  EXPECT_EQ(own.status, 200);
  const Answer none = service.get("/v1/models");
  EXPECT_EQ(none.status, 200);
  EXPECT_FALSE(none.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(none.headers.at("vary"), "Origin");
}

TEST(Door, AnAllowedPageMayReadEveryAnswer) {
  Service service({.server = {.api_keys = keys_of({"alpha"}), .allowed_origins = {"https://app.example"}}});
  const std::string origin = "Origin: https://app.example\r\n";
  const Answer preflight = ask(service, "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + origin +
                                            "Access-Control-Request-Method: POST\r\n"
                                            "Access-Control-Request-Headers: authorization,x-y\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,x-y");
  EXPECT_THAT(preflight.headers.at("access-control-allow-methods"), HasSubstr("POST"));
  const std::string key = origin + "Authorization: Bearer alpha\r\n";
  const std::vector<std::pair<Answer, int>> answers = {
      {preflight, 204},
      {service.get("/v1/models", origin), 401},
      {service.get("/v1/models", key), 200},
      {service.get("/v1/none", key), 404},
      {service.post("/v1/completions", "{", key), 400},
      {service.post("/v1/completions", R"({"prompt": "a", "stream": true})", key), 200}};
  for (const auto& [answer, status] : answers) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example") << status;
    EXPECT_EQ(answer.headers.at("vary"), "Origin") << status;
  }
  Service open({.server = {.allowed_origins = {"*"}}});
  EXPECT_EQ(open.get("/v1/models", origin).headers.at("access-control-allow-origin"), "*");
}

TEST(Door, AForeignHostIsRefused) {
  Service service({.default_hosts = true});
  const auto status = [&](std::string_view host, std::string_view path) {
    return ask(service, fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", path, host)).status;
  };
  EXPECT_EQ(status(fmt::format("localhost:{}", service.port()), "/v1/models"), 200);
  EXPECT_EQ(status("127.0.0.1", "/health"), 200);
  EXPECT_EQ(status("[::1]:8000", "/health"), 200);
  for (const char* path : {"/v1/models", "/health", "/metrics"}) EXPECT_EQ(status("evil.example", path), 403);
  const Answer post = service.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(post.status, 403);
  EXPECT_EQ(code_of(post), "host_not_allowed");
  EXPECT_THAT(post.body, HasSubstr("--allowed-hosts"));
  // What the page's own name points to is the same origin for the browser.
  const Answer rebound =
      ask(service, "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n");
  EXPECT_EQ(rebound.status, 403);
  EXPECT_EQ(ask(service, "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403);
}

TEST(Door, ProbesReachAServerBeyondLoopbackByItsAddress) {
  Service service({.server = {.host = "0.0.0.0", .allowed_hosts = {"llm.example"}}});
  const auto status = [&](std::string_view host) {
    return ask(service, fmt::format("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", host)).status;
  };
  EXPECT_FALSE(service.server().on_loopback());
  EXPECT_EQ(status("10.1.2.3:8000"), 200);
  EXPECT_EQ(status("llm.example"), 200);
  EXPECT_EQ(status("evil.example"), 403);
  Service any({.server = {.host = "0.0.0.0"}, .default_hosts = true});
  EXPECT_EQ(any.get("/health").status, 200);
}

TEST(Door, BodiesAreJson) {
  Service service;
  const auto post = [&](std::string_view headers) {
    constexpr std::string_view kBody = R"({"prompt": "a", "max_tokens": 1})";
    return ask(service,
               fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}",
                           headers, kBody.size(), kBody));
  };
  for (const char* good : {"application/json", "Application/JSON", "application/json; charset=utf-8"}) {
    EXPECT_EQ(post(fmt::format("Content-Type: {}\r\n", good)).status, 200) << good;
  }
  for (const char* bad :
       {"text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json", "*/*"}) {
    const Answer answer = post(fmt::format("Content-Type: {}\r\n", bad));
    EXPECT_EQ(answer.status, 415) << bad;
    EXPECT_EQ(code_of(answer), "unsupported_media_type");
    EXPECT_THAT(answer.body, HasSubstr("send Content-Type: application/json"));
    EXPECT_THAT(answer.body, HasSubstr(bad)) << "what came is named";
  }
  const Answer none = post("");
  EXPECT_EQ(none.status, 415);
  EXPECT_THAT(none.body, HasSubstr("no Content-Type"));
  const Answer packed = post("Content-Type: application/json\r\nContent-Encoding: gzip\r\n");
  EXPECT_EQ(packed.status, 415);
  EXPECT_THAT(packed.body, HasSubstr("Content-Encoding: gzip is not supported"));
  EXPECT_EQ(post("Content-Type: application/json\r\nContent-Encoding: identity\r\n").status, 200);
}

TEST(Door, UsersShareBlocksUnlessIsolated) {
  const auto cached = [](Service& service, const char* key, const char* user) {
    return service
        .post(
            "/v1/completions",
            fmt::format(R"({{"prompt": "{}", "max_tokens": 2, "user": "{}"}})", std::string(100, 'q'), user),
            fmt::format("Authorization: Bearer {}\r\n", key))
        .parsed()
        .at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .as_int64();
  };
  Service shared;
  EXPECT_EQ(cached(shared, "", "ann"), 0);
  EXPECT_EQ(cached(shared, "", "bob"), 96);
  Service isolated({.server = {.api_keys = keys_of({"alpha", "beta"}), .isolate_users = true}});
  EXPECT_EQ(cached(isolated, "alpha", "ann"), 0);
  EXPECT_EQ(cached(isolated, "alpha", "bob"), 0);
  EXPECT_EQ(cached(isolated, "alpha", "ann"), 96);
  EXPECT_EQ(cached(isolated, "beta", "ann"), 0);
}

}  // namespace
}  // namespace quire::serve
