#pragma once

#include <exception>
#include <string>

// What main does around every command.
namespace quire::cli {

/// What the process does where a file it has mapped becomes shorter (see report_lost_mappings) and where a
/// file it writes becomes longer than it may (the write fails). Before any thread starts.
void handle_file_signals();

/// Has the allocator give buffers of a megabyte and more, such as bodies of requests, back to the system when
/// they are freed. By default glibc keeps what has the size of any that was freed before (mallopt(3)).
void return_large_buffers();

/// What an exception says, as one line for the operator.
std::string describe(const std::exception& error);

}  // namespace quire::cli
