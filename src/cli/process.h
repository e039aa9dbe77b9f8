#pragma once

#include <exception>
#include <string>
#include <string_view>

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

/// "quire: WHAT" as a line on standard error. Waits for one second at most for who reads it; what is not read
/// by then is lost.
void complain(std::string_view what);

/// Writes what standard output has buffered. Throws Error if it, or something before it, cannot be written.
void finish_output();

}  // namespace quire::cli
