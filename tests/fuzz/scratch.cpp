#include "tests/fuzz/scratch.h"

#include <cstdlib>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>

namespace quire::fuzz {
namespace {

struct Directory {
  std::filesystem::path path;
  Directory() {
    std::string name =
        (std::filesystem::exists("/dev/shm") ? std::string("/dev/shm")
                                             : std::filesystem::temp_directory_path().string()) +
        "/quire-fuzz-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

const std::filesystem::path& scratch_dir() {
  static const Directory directory;
  return directory.path;
}

std::filesystem::path scratch_file(std::string_view name, std::string_view content) {
  const std::filesystem::path path = scratch_dir() / name;
  std::filesystem::create_directories(path.parent_path());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("cannot write " + path.string());
  const ssize_t written = write(file, content.data(), content.size());
  close(file);
  if (written != static_cast<ssize_t>(content.size())) throw std::runtime_error("short write");
  return path;
}

}  // namespace quire::fuzz
