// The page at /: who gets it, in which form, and with which headers.
#include "serve/file_answer.h"

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "page/files.h"
#include "tests/serve/api_answer.h"

namespace quire::serve {
namespace {

using test::Answer;
using test::error_code;
using test::HttpClient;
using test::keys_of;
using test::Service;
using testing::HasSubstr;

constexpr std::string_view kGzip = "Accept-Encoding: gzip, deflate, br\r\n";

class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (page::files().empty()) GTEST_SKIP() << "built without the page";
  }
  static std::string_view plain(std::string_view path) { return page::plain(*page::find_file(path)); }
};

TEST(TakesGzip, AsTheHeaderSays) {
  for (const char* yes :
       {"gzip", "GZip", "x-gzip", "br, gzip", "gzip;q=0.1", "gzip ; q=1", "deflate;q=0,gzip ;Q=0.001", "*",
        "*;q=0.5", "identity;q=0, *", "gzip, *;q=0", "*;q=0, gzip", ",, gzip"}) {
    EXPECT_TRUE(takes_gzip(yes)) << yes;
  }
  for (const char* no : {"", "br", "gzip;q=0", "gzip;q=0.000", "gzip; q=0., *", "*;q=0", "identity",
                         "gzipped", "gzip;q=", ";gzip", "gzip;q=0, x-gzip"}) {
    EXPECT_FALSE(takes_gzip(no)) << no;
  }
}

TEST(NamesTag, AsTheHeaderSays) {
  for (const char* yes :
       {R"("a")", R"(W/"a")", R"("b", "a")", R"("b",W/"a" , "c")", "*", " * ", R"(,"a",)"}) {
    EXPECT_TRUE(names_tag(yes, R"("a")")) << yes;
  }
  for (const char* no : {"", "a", R"("b")", R"("A")", R"(w/"a")", R"("aa")", R"("b", *)", R"("a)"}) {
    EXPECT_FALSE(names_tag(no, R"("a")")) << no;
  }
}

TEST_F(PageTest, IsAtTheRoot) {
  Service service;
  const Answer page = service.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, plain("/"));
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(
      page.headers.at("content-security-policy"),
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.headers.at("referrer-policy"), "no-referrer");
  EXPECT_EQ(page.headers.at("cross-origin-opener-policy"), "same-origin");
  EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  EXPECT_FALSE(page.headers.contains("content-encoding"));
  EXPECT_EQ(service.get("/?conversation=1").body, page.body);
  EXPECT_EQ(service.get("/favicon.ico").headers.at("content-type"), "image/svg+xml; charset=utf-8");
  EXPECT_EQ(service.get("/page/lib/purify.js").body, plain("/page/lib/purify.js"));
}

TEST_F(PageTest, OtherPathsAreNotThere) {
  Service service;
  for (const char* path : {"/page", "/page/", "/page/nothing.js", "/page/../page/main.js",
                           "/page/%2e%2e/index.html", "/index.html"}) {
    const Answer answer = service.get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(error_code(answer), "not_found") << path;
  }
  EXPECT_EQ(service.post("/", "{}").status, 405);
}

TEST_F(PageTest, IsCompressedForThoseWhoTakeThat) {
  Service service;
  const page::File& file = *page::find_file("/page/lib/highlight.js");
  const Answer packed = service.get(file.path, kGzip);
  EXPECT_EQ(packed.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(packed.body, file.gzip);
  const Answer whole = service.get(file.path, "Accept-Encoding: gzip;q=0\r\n");
  EXPECT_FALSE(whole.headers.contains("content-encoding"));
  EXPECT_EQ(whole.body, page::plain(file));
  EXPECT_NE(packed.headers.at("etag"), whole.headers.at("etag")) << "they are different bytes";
  EXPECT_EQ(service.get(file.path, "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n").body, file.gzip);
  HttpClient client(service.port());
  client.send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", file.path));
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Vary: Accept-Encoding\r\n"));
}

TEST_F(PageTest, IsNotSentAgain) {
  Service service;
  for (const std::string_view form : {std::string_view(), kGzip}) {
    HttpClient client(service.port());
    const std::string tag = client.get("/", form).headers.at("etag");
    EXPECT_TRUE(tag.starts_with('"') && tag.ends_with('"')) << tag;
    for (const std::string& known : {tag, "W/" + tag, "\"x\", " + tag, std::string("*")}) {
      client.send(fmt::format("GET / HTTP/1.1\r\nHost: x\r\n{}If-None-Match: {}\r\n\r\n", form, known));
      const Answer same = client.read_answer(false);
      EXPECT_EQ(same.status, 304) << known;
      EXPECT_EQ(same.headers.at("etag"), tag);
      EXPECT_FALSE(same.headers.contains("content-length"));
      EXPECT_FALSE(same.headers.contains("content-type"));
      EXPECT_TRUE(same.headers.contains("content-security-policy"));
    }
    EXPECT_EQ(client.get("/", fmt::format("{}If-None-Match: \"other\"\r\n", form)).status, 200)
        << "the connection goes on as before";
  }
}

TEST_F(PageTest, ItsHeadIsThatOfItsBody) {
  Service service;
  HttpClient client(service.port());
  for (const std::string_view form : {std::string_view(), kGzip}) {
    client.send(fmt::format("HEAD / HTTP/1.1\r\nHost: x\r\n{}\r\n", form));
    const Answer head = client.read_answer(false);
    const Answer whole = client.get("/", form);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("content-length"), std::to_string(whole.body.size()));
    EXPECT_EQ(head.headers.at("etag"), whole.headers.at("etag"));
  }
}

TEST_F(PageTest, NeedsNoKeyAndTheApiDoes) {
  test::ServiceOptions options;
  options.server.api_keys = keys_of({"secret"});
  Service service(options);
  EXPECT_EQ(service.get("/").status, 200);
  EXPECT_EQ(service.get("/page/lib/marked.js").status, 200);
  EXPECT_EQ(service.get("/v1/models").status, 401);
}

TEST_F(PageTest, IsForTheHostsAndOriginsOfTheServer) {
  Service service;
  EXPECT_EQ(service.get("/", "Origin: http://evil.example\r\n").status, 403);
  HttpClient client(service.port());
  client.send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 403);
}

TEST(NoPage, IsNotShownWhereItIsNotWanted) {
  test::ServiceOptions options;
  options.server.page = false;
  Service service(options);
  for (const char* path : {"/", "/page/lib/marked.js", "/favicon.ico"}) {
    const Answer answer = service.get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(error_code(answer), "no_page") << path;
    EXPECT_THAT(answer.body, HasSubstr("--no-page")) << path;
  }
  EXPECT_EQ(service.get("/v1/models").status, 200);
}

}  // namespace
}  // namespace quire::serve
