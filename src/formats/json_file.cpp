#include "formats/json_file.h"

#include <fstream>

#include <boost/json/serialize.hpp>

#include "base/file_error.h"

namespace quire::formats {

void write_json_file(const std::filesystem::path& path, const json::value& value) {
  write_binary_file(path, json::serialize(value) + '\n');
}

void write_binary_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw file_error(path, "cannot be written");
}

void make_directory(const std::filesystem::path& dir) {
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) throw file_error(dir, failed.message());
}

}  // namespace quire::formats
