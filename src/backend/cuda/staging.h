#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/cuda/runtime.h"
#include "backend/executor.h"

namespace quire::backend::cuda {

/// Pinned memory from which inputs of steps are copied to the device while the host goes on. Not thread-safe.
class Staging {
 public:
  /// For copies of up to `bytes`. `what`: for messages. Throws Error if there is too little memory.
  Staging(size_t bytes, const std::string& what) {
    for (Piece& piece : pieces_) piece.memory = PinnedBuffer(bytes, what);
  }

  /// Memory for the next copy, at a multiple of 256 bytes; waits until the device has read what was in it.
  std::byte* take() {
    current_ = (current_ + 1) % kPieces;
    pieces_[current_].copied.wait();
    return pieces_[current_].memory.data();
  }
  /// Copies the first `bytes` of what take() gave; once for each.
  void copy(void* to, size_t bytes, Stream stream) {
    copy_to_device(to, pieces_[current_].memory.data(), bytes, stream);
    pieces_[current_].copied.record(stream);
  }

 private:
  /// One that a step fills while the others wait to be read.
  static constexpr uint32_t kPieces = kMostOpenSteps;
  struct Piece {
    PinnedBuffer memory;
    Event copied;
  };
  Piece pieces_[kPieces];
  uint32_t current_ = 0;
};

}  // namespace quire::backend::cuda
