#include "formats/json_file.h"

#include <optional>

#include <boost/json/serialize.hpp>

#include "base/file_error.h"
#include "base/output_file.h"

namespace quire::formats {

void write_json_file(const std::filesystem::path& path, const json::value& value) {
  write_binary_file(path, json::serialize(value) + '\n');
}

void write_binary_file(const std::filesystem::path& path, std::string_view bytes) {
  replace_file(path, bytes, std::nullopt);
}

void make_directory(const std::filesystem::path& dir) {
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) throw file_error(dir, failed.message());
}

}  // namespace quire::formats
