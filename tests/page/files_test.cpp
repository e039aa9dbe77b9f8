// The page's files: what they are, and that each one that another asks for is there.
#include "page/files.h"

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::page {
namespace {

using testing::HasSubstr;
using testing::Not;

class PageFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (files().empty()) GTEST_SKIP() << "built without the page";
  }
};

bool is_library(const File& file) { return file.path.starts_with("/page/lib/"); }

/// Where `reference`, in a file at `base`, points to. The page itself is at "/".
std::string resolved(std::string_view base, std::string_view reference) {
  reference = reference.substr(0, reference.find_first_of("?#"));
  std::string path(reference);
  if (!path.starts_with('/')) path = std::string(base.substr(0, base.rfind('/') + 1)) + path;
  std::vector<std::string> parts;
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (part == ".." && !parts.empty()) parts.pop_back();
    if (part != ".." && part != ".") parts.push_back(part);
    at = end + 1;
  }
  std::string out;
  for (const std::string& part : parts) out += "/" + part;
  return out.empty() ? "/" : out;
}

std::vector<std::string> matches(std::string_view text, const char* pattern) {
  const std::regex wanted(pattern);
  std::vector<std::string> out;
  for (std::cregex_iterator at(text.data(), text.data() + text.size(), wanted), end; at != end; ++at)
    out.push_back((*at)[1]);
  return out;
}

/// What a file asks for, as it writes it. Libraries ask for nothing.
std::vector<std::string> references(const File& file) {
  const std::string_view text = plain(file);
  std::vector<std::string> out;
  const auto add = [&](const char* pattern) {
    for (std::string& found : matches(text, pattern)) out.push_back(std::move(found));
  };
  if (is_library(file)) return out;
  if (file.path.ends_with(".html")) add(R"re(<(?:script|link|img|a)\b[^>]*\b(?:src|href)="([^"]*)")re");
  if (file.path.ends_with(".css")) add(R"re((?:url\(|@import )\s*["']?([^"')]*))re");
  if (file.path.ends_with(".js")) {
    add(R"re((?:^|\n)\s*(?:import|export|\})[^;"'\n]{0,400}\bfrom\s*["']([^"'\n]+)["'])re");
    add(R"re((?:^|\n)\s*import\s*["']([^"'\n]+)["'])re");
    add(R"re(\bimport\(\s*["']([^"'\n]+)["']\s*\))re");
    add(R"re(["'](/page/[^"'\n]+)["'])re");
  }
  std::erase_if(out, [](const std::string& found) {
    return found.empty() || found.starts_with('#') || found.starts_with("data:") ||
           found.starts_with("blob:");
  });
  return out;
}

TEST_F(PageFiles, AreInOrderEachWithItsBytes) {
  EXPECT_TRUE(std::ranges::is_sorted(files(), {}, &File::path));
  std::set<std::string_view> hashes;
  for (const File& file : files()) {
    SCOPED_TRACE(file.path);
    EXPECT_TRUE(file.path.starts_with("/page/"));
    EXPECT_EQ(find_file(file.path), &file);
    EXPECT_EQ(plain(file).size(), file.size);
    EXPECT_EQ(plain(file).data(), plain(file).data()) << "it is decompressed once";
    EXPECT_TRUE(file.gzip.starts_with("\x1f\x8b"));
    EXPECT_EQ(file.hash.size(), 32U);
    EXPECT_EQ(file.hash.find_first_not_of("0123456789abcdef"), std::string_view::npos);
    EXPECT_NE(content_type(file), "application/octet-stream");
    hashes.insert(file.hash);
  }
  EXPECT_EQ(hashes.size(), files().size());
}

TEST_F(PageFiles, HaveTheirTypes) {
  EXPECT_EQ(content_type(*find_file("/")), "text/html; charset=utf-8");
  EXPECT_EQ(content_type(*find_file("/favicon.ico")), "image/svg+xml; charset=utf-8");
  EXPECT_EQ(content_type({.path = "/page/a.css"}), "text/css; charset=utf-8");
  EXPECT_EQ(content_type({.path = "/page/a.js"}), "text/javascript; charset=utf-8");
  EXPECT_EQ(content_type({.path = "/page/a.txt"}), "text/plain; charset=utf-8");
  EXPECT_EQ(content_type({.path = "/page/a"}), "application/octet-stream");
}

TEST_F(PageFiles, OthersAreNotThere) {
  for (const char* path : {"", "/page", "/page/", "/page/nothing.js", "/page/../page/index.html",
                           "/page/index.html/", "/index.html", "/page/CMakeLists.txt"}) {
    EXPECT_EQ(find_file(path), nullptr) << path;
  }
}

TEST_F(PageFiles, HaveTheLibraries) {
  EXPECT_THAT(std::string(plain(*find_file("/page/lib/marked.js"))), HasSubstr("marked"));
  EXPECT_THAT(std::string(plain(*find_file("/page/lib/purify.js"))), HasSubstr("DOMPurify"));
  EXPECT_THAT(std::string(plain(*find_file("/page/lib/katex.js"))), HasSubstr("katex"));
  EXPECT_THAT(std::string(plain(*find_file("/page/lib/highlight.js"))), HasSubstr("hljs"));
  // As Debian 12 has it, it throws whatever it is given.
  EXPECT_THAT(std::string(plain(*find_file("/page/lib/purify.js"))), HasSubstr("if (body && FORCE_BODY)"));
  for (const File& file : files()) {
    EXPECT_THAT(std::string(plain(file)), Not(HasSubstr("sourceMappingURL="))) << file.path;
  }
}

TEST_F(PageFiles, HaveTheLicencesOfTheLibraries) {
  const std::string licences(plain(*find_file("/page/licences/copyright.txt")));
  for (const char* owner : {"Christopher Jeffrey", "Mario Heiderich", "Khan Academy", "Ivan Sagalaev"})
    EXPECT_THAT(licences, HasSubstr(owner));
  for (const char* licence :
       {"License: Expat\n Permission is", "License: BSD-3-Clause\n Redistribution", "License: Apache-2.0\n"})
    EXPECT_THAT(licences, HasSubstr(licence));
  EXPECT_THAT(std::string(plain(*find_file("/page/licences/LICENSE.txt"))), HasSubstr("Apache License"));
}

// From the page on, and also from files that it does not reach.
TEST_F(PageFiles, FindAllThatTheyAskFor) {
  for (const File& file : files()) {
    for (const std::string& reference : references(file)) {
      const bool is_page = file.path == "/page/index.html";
      EXPECT_EQ(reference.find("://"), std::string::npos) << file.path << " goes to " << reference;
      const std::string path = resolved(is_page ? "/" : file.path, reference);
      EXPECT_NE(find_file(path), nullptr)
          << file.path << " asks for " << reference << ", which would be " << path;
    }
  }
}

TEST_F(PageFiles, AreAllReachedFromThePage) {
  std::set<const File*> reached;
  std::vector<const File*> open = {find_file("/"), find_file("/favicon.ico")};
  while (!open.empty()) {
    const File* file = open.back();
    open.pop_back();
    if (!reached.insert(file).second) continue;
    for (const std::string& reference : references(*file)) {
      const bool is_page = file->path == "/page/index.html";
      if (const File* next = find_file(resolved(is_page ? "/" : file->path, reference))) open.push_back(next);
    }
  }
  for (const File& file : files()) {
    // Some of the drawing is for `quire explain` alone.
    EXPECT_TRUE(reached.contains(&file) || file.path.starts_with("/page/draw/")) << file.path;
  }
}

// The one that it shares with the page of quire explain.
TEST_F(PageFiles, HaveTheirColoursInOneFile) {
  const char* colours = "(--owner-0|--ink|--page):";
  for (const File& file : files()) {
    if (is_library(file)) continue;
    const bool has_colours = !matches(plain(file), colours).empty();
    EXPECT_EQ(has_colours, file.path == "/page/draw/colours.css") << file.path;
  }
}

// The page's Content-Security-Policy would ignore them without a word.
TEST_F(PageFiles, HaveNoScriptsOrStylesWithinThePage) {
  const std::string page(plain(*find_file("/")));
  EXPECT_THAT(matches(page, R"re((<script(?![^>]*\bsrc=)[^>]*>))re"), testing::IsEmpty());
  EXPECT_THAT(matches(page, R"re((<style\b))re"), testing::IsEmpty());
  EXPECT_THAT(matches(page, R"re((<[^>]*\s(?:style|on[a-z]+)=[^>]*>))re"), testing::IsEmpty());
}

}  // namespace
}  // namespace quire::page
