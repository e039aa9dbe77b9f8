#pragma once

#include <cstddef>
#include <span>
#include <string_view>

// The files of the page that the server shows at /, which are compiled in (CMakeLists.txt says which they
// are).
namespace quire::page {

/// One file. What it refers to lasts as long as the program.
struct File {
  std::string_view path;  // "/page/main.js"
  std::string_view gzip;  // its bytes, compressed (RFC 1952)
  size_t size;            // of its bytes, before they were compressed
  std::string_view hash;  // of its bytes, in hex
};

/// All files, by path; none if quire is built without the page (QUIRE_PAGE=OFF).
std::span<const File> files();

/// The file that is shown at `path`: one of files(), the page itself at "/", its icon at "/favicon.ico"; null
/// if there is none.
const File* find_file(std::string_view path);

/// By the end of the path: "text/javascript; charset=utf-8".
std::string_view content_type(const File& file);

/// The bytes of one of files(). They are decompressed when they are first wanted and then kept: all of them
/// together are a few megabytes. Throws std::bad_alloc. Thread-safe.
std::string_view plain(const File& file);

}  // namespace quire::page
