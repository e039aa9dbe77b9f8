#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/device_on_host/streams.h"

// The memory of the device that fibers make: regions with red zones around them, and for each byte of a
// region who wrote and read it last.
namespace quire::test::fibers {

inline constexpr size_t kRedZone = 256;
inline constexpr uint32_t kLanes = 32;

/// Which thread made an access, and how many barriers it had passed: two accesses of one launch are in order
/// if they are of one thread, or of one block with a barrier between them, or of one warp with a __syncwarp
/// between them.
struct Stamp {
  uint32_t launch = 0;  // from 1 on
  uint32_t block = 0;
  uint16_t thread = 0;
  uint16_t barriers = 0;
  uint32_t warp_syncs = 0;
};

struct Access {
  uintptr_t address = 0;
  uint32_t bytes = 0;
  bool write = false;
  const void* code = nullptr;      // behind the instruction
  bool carries_unwritten = false;  // a read that may be of bytes which nobody wrote: they are only copied
};

enum class RegionKind : uint8_t { kGlobal, kShared, kParameters };

class Region {
 public:
  /// Memory of its own between red zones, none of it written.
  Region(std::string name, RegionKind kind, size_t bytes);
  /// Memory of the host that a kernel may read: its parameters.
  Region(std::string name, const void* memory, size_t bytes);

  std::byte* data() { return data_; }
  /// What the host reads.
  const std::byte* host_data() const { return data_; }
  size_t size() const { return size_; }
  RegionKind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  /// Bytes that kernels have read here.
  size_t bytes_read() const { return bytes_read_; }
  void count_read(size_t bytes) { bytes_read_ += bytes; }

  bool has(uintptr_t address) const { return address - begin() < size_; }
  /// Within the region or one of its red zones.
  bool is_near(uintptr_t address) const { return address - begin() + kRedZone < size_ + 2 * kRedZone; }
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(data_); }

  /// As the host does, between launches.
  void write(size_t first, const void* from, size_t bytes);
  /// The host, or a library, has written there.
  void mark_written(size_t first, size_t bytes);
  /// The host has copied these bytes of `from`: they are written here if they are there.
  void copy_written(size_t first, const Region& from, size_t from_first, size_t bytes);
  void forget_writes() { written_.assign(size_, 0); }
  bool is_written(size_t first, size_t bytes) const;
  size_t bytes_written() const;

  /// Notes work of a stream that wrote here, anywhere; the latest of each stream counts.
  void note_work(const Streams::Work& work);
  /// Whether all such work is among what the host had waited for: by stream, the last.
  bool is_complete(const std::vector<uint64_t>& waited) const;

  /// Whether a kernel of this launch wrote one of the bytes.
  bool is_written_by(uint32_t launch, size_t first, size_t bytes) const;

  /// Notes an access that lies within. Returns the stamp of an earlier one that it is not ordered after, or
  /// null.
  const Stamp* note(const Access& access, const Stamp& now);

 private:
  struct Cell {
    Stamp write;
    Stamp read;  // of the last thread, or of several: see memory.cpp
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using Cells = std::unique_ptr<Cell[], Free>;
  static Cells make_cells(size_t count);
  bool in_order(const Stamp& before, const Stamp& now) const;
  void note_read(Stamp& last, const Stamp& now) const;
  const Stamp* note_in(Cell& cell, bool write, const Stamp& now);

  std::string name_;
  RegionKind kind_;
  size_t size_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* data_;
  std::vector<uint8_t> written_;
  // Most accesses are of 16 bytes, whose past is then one. Both arrays are of pages that are zero until they
  // are touched.
  Cells lines_;                 // of each 16 bytes that are not split
  std::vector<uint8_t> split_;  // which of them are: the bytes have cells of their own
  Cells cells_;
  Stamp conflict_;
  std::vector<uint64_t> work_;  // by stream
  size_t bytes_read_ = 0;
};

}  // namespace quire::test::fibers
