#include "cli/process.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <iostream>
#include <malloc.h>
#include <new>
#include <stdexcept>
#include <system_error>
#include <unistd.h>

#include <fmt/color.h>
#include <fmt/format.h>
#include <spdlog/details/log_msg.h>

#include "base/describe.h"
#include "base/error.h"
#include "base/stderr_sink.h"
#include "cli/terminal.h"
#include "formats/mapped_file.h"

namespace quire::cli {

void reserve_standard_files() {
  // Open for the other direction than theirs, so that to use them fails as if they were closed.
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void handle_file_signals() {
  signal(SIGXFSZ, SIG_IGN);  // what is too long for the limit fails with EFBIG
  formats::report_lost_mappings();
}

void return_large_buffers() { mallopt(M_MMAP_THRESHOLD, 1 << 20); }

std::string describe(const std::exception& error) {
  // A length_error is a vector longer than any memory.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr) {
    return "out of memory: lower --num-blocks or --kv-cache-memory, --max-num-seqs, --max-num-batched-tokens "
           "or --max-model-len, or make the weights smaller (--quantization), whichever the command has";
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error);
      system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return "no more threads can be started: lower --threads, or raise the limit of processes "
           "(ulimit -u, or pids.max of the container) or of the address space (ulimit -v)";
  }
  return quire::describe(error);
}

void complain(std::string_view what) {
  constexpr std::chrono::seconds kPatience{1};
  const std::string line =
      fmt::format("{} {}", paint(stderr, "quire:", fmt::fg(fmt::terminal_color::red)), what);
  StderrSink out;
  out.set_pattern("%v");
  out.do_not_block({});
  out.set_deadline(StderrSink::Clock::now() + kPatience);
  out.log(spdlog::details::log_msg("", spdlog::level::err, line));
}

void finish_output() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    throw Error("standard output cannot be written");
  }
}

}  // namespace quire::cli
