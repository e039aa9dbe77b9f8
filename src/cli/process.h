#pragma once

#include <exception>
#include <string>
#include <string_view>

// Process-wide setup for every command.
namespace quire::cli {

/// The argument with which quire starts itself to try out grammars; not for users.
inline constexpr std::string_view kCompileGrammars = "--compile-grammars";

/// Handles the signals for a mapped file that was truncated (see report_lost_mappings) and for a file that
/// exceeds the size limit (the write fails). Call before any thread starts.
void handle_file_signals();

/// Makes sure that no file which is opened later gets the number of a standard stream that the caller closed:
/// what is printed would be written into it. To be called before any file is opened.
void reserve_standard_files();

/// Makes the allocator return buffers of a megabyte or more, such as bodies of requests, to the system when
/// they are freed. By default glibc keeps buffers up to the size of any that was freed before (mallopt(3)).
void return_large_buffers();

/// The message of an exception, as one line for the operator.
std::string describe(const std::exception& error);

/// Writes "quire: WHAT" as a line to standard error. Waits at most one second for the reader; output that is
/// not read by then is lost.
void complain(std::string_view what);

/// Flushes standard output. Throws Error if this or an earlier write failed.
void finish_output();

}  // namespace quire::cli
