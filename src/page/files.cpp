#include "page/files.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <zlib.h>

#include <fmt/format.h>

namespace quire::page {
namespace {

/// The length is known, and nothing longer is written.
std::string decompress(const File& file) {
  std::string out(file.size, '\0');
  z_stream stream{};
  constexpr int kGzip = 16;
  if (inflateInit2(&stream, kGzip + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(file.gzip.data()));
  stream.avail_in = static_cast<uInt>(file.gzip.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int ended = inflate(&stream, Z_FINISH);
  const bool whole = ended == Z_STREAM_END && stream.total_out == file.size;
  inflateEnd(&stream);
  if (ended == Z_MEM_ERROR) throw std::bad_alloc();
  if (!whole) throw std::logic_error(fmt::format("{} is damaged in this program", file.path));
  return out;
}

}  // namespace

const File* find_file(std::string_view path) {
  if (path == "/") path = "/page/index.html";
  if (path == "/favicon.ico") path = "/page/icon.svg";
  const std::span<const File> all = files();
  const auto found = std::ranges::lower_bound(all, path, {}, &File::path);
  return found != all.end() && found->path == path ? &*found : nullptr;
}

std::string_view content_type(const File& file) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},     {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"}, {".svg", "image/svg+xml; charset=utf-8"},
      {".txt", "text/plain; charset=utf-8"},
  };
  for (const auto& [end, type] : kTypes) {
    if (file.path.ends_with(end)) return type;
  }
  return "application/octet-stream";
}

std::string_view plain(const File& file) {
  static std::mutex mutex;
  static std::map<std::string_view, std::string> kept;
  const std::lock_guard lock(mutex);
  const auto found = kept.find(file.path);
  if (found != kept.end()) return found->second;
  return kept.emplace(file.path, decompress(file)).first->second;
}

}  // namespace quire::page
