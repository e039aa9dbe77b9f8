#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/device.h"
#include "base/rng.h"
#include "tests/device_on_host/async_copies.h"
#include "tests/device_on_host/block_run.h"
#include "tests/device_on_host/memory.h"
#include "tests/device_on_host/streams.h"
#include "tests/device_on_host/traffic.h"

// A GPU made of fibers: runs the .cu sources of src/backend/cuda, compiled by g++, and checks what they do.
// docs/device-on-host.md says what it sees and what it cannot see.
namespace quire::test::fibers {

enum class Checker : uint8_t {
  kBounds,         // an access outside of every allocation
  kAlignment,      // not at a multiple of its size
  kUninitialised,  // a read of what nobody wrote
  kRace,           // two accesses, one of them a write, in no order
  kConstant,       // a read-only load of what this launch wrote
  kBarrier,        // not all threads of a block reach it
  kEarly,          // a kernel that begins early does not wait for those before it, or touches memory before
  kUnderWay,       // an access to where a copy goes that nobody has waited for
  kLane,           // a lane of a shuffle's or __syncwarp's mask does not reach it
  kBankConflicts,  // more than the kernel's row in the table of limits allows
  kUncoalesced,    // likewise
  kLaunch,         // a launch that no device takes
};

struct Finding {
  Checker checker = Checker::kBounds;
  std::string kernel;
  backend::cuda::Grid block;
  uint32_t thread = 0;
  uintptr_t address = 0;  // 0 for barriers and shuffles
  std::string source;     // "file:line"
  std::string text;       // all of it in one line
};

/// One at a time: kernels that are launched while it exists run on it. After an access outside of memory or
/// at a wrong multiple, and at a barrier that a thread misses, a launch ends without running the rest.
class Device {
 public:
  /// `seed` decides the order of blocks, warps, lanes and streams, and how much shared memory a
  /// multiprocessor has. Counting traffic takes several times as long.
  explicit Device(uint64_t seed, bool counts_traffic = false);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  static Device* current();

  Region& allocate(std::string name, size_t bytes);
  /// Gives an allocation back: from then on nothing may touch it.
  void free(const void* begin);
  /// Why the host, or a library, may not read or write these bytes; empty if it may.
  std::string why_not(const void* at, size_t bytes, bool is_read);
  /// Of all allocations, and of pinned memory.
  size_t bytes_allocated() const;
  bool owns(const void* at) { return find(reinterpret_cast<uintptr_t>(at)) != nullptr; }
  /// As the host does: what was not written in `from` is not written in `to` either. Either may be memory of
  /// the host. REQUIRES: both lie in one allocation as far as they are of the device.
  void copy(void* to, const void* from, size_t bytes);
  /// The host, or a library, has written them. REQUIRES: they lie in one allocation.
  void mark_written(const void* at, size_t bytes);

  uint32_t multiprocessor_shared_bytes() const { return multiprocessor_shared_bytes_; }
  Streams& streams() { return streams_; }

  const std::vector<Finding>& findings() const { return findings_; }
  std::string report() const;
  /// The most that a block has passed.
  uint32_t barriers() const { return barriers_; }
  /// By kernel; empty unless it counts.
  const std::map<std::string, Traffic>& traffic() const { return traffic_; }
  /// How many there have been, and of these, kernels that begin early.
  uint32_t launches() const { return launches_; }
  uint32_t early_launches() const { return early_launches_; }

  // What the kernels' calls come to.
  int launch(const char* kernel, const backend::cuda::LaunchShape& shape, void (*call)(const void*),
             const void* closure, size_t bytes);
  void let_next_begin(const std::source_location& where) { BlockRun::running->next_from = where; }
  void wait_for_earlier() { BlockRun::running->is_early = false; }
  void on_access(const Access& access);
  void on_constant_read(const Access& access);
  void copy_global(void* to, const void* from, uint32_t bytes, const void* code);
  void begin_copy(void* to, const void* from, uint32_t bytes, const void* code);
  void commit_copies();
  void wait_for_copies(uint32_t but);
  backend::cuda::Grid block() const { return block_; }
  backend::cuda::Grid grid() const { return grid_; }
  void* shared_memory() const { return shared_->data(); }
  BlockRun& block_run() { return run_; }

 private:
  /// `waited`: Streams::waited() when the kernel was launched.
  void run(const char* kernel, const backend::cuda::LaunchShape& shape, void (*call)(const void*),
           const std::vector<std::byte>& parameters, const std::vector<uint64_t>& waited);
  void check_early(const Access& access, const Region& region);
  void check_waits();
  Region* find(uintptr_t address);
  void end(Checker checker, const Access& access, const std::string& what);
  void check_order(const Access& access, Region& region);
  void check_rest_of_copies();
  void add(Checker checker, const Access& access, const std::string& what);
  void add(Checker checker, uint32_t thread, uintptr_t address, const std::string& source,
           const std::string& what);
  std::string place(uintptr_t address) const;
  void enter_block(uint32_t number);
  bool run_block();
  void check_traffic();

  SplitMix64 rng_;
  Streams streams_;
  uint32_t multiprocessor_shared_bytes_;
  bool counts_traffic_;
  BlockRun run_;
  AsyncCopies copies_;
  std::vector<std::unique_ptr<Region>> regions_;
  Region* last_found_ = nullptr;
  std::unique_ptr<Region> shared_memory_;  // of the last launch, between launches
  Region* shared_ = nullptr;               // while a kernel runs

  std::string kernel_;
  backend::cuda::LaunchShape shape_;
  backend::cuda::Grid grid_;
  backend::cuda::Grid block_;
  void (*call_)(const void*) = nullptr;
  const void* closure_ = nullptr;
  std::vector<uint64_t> waited_;
  uint32_t launches_ = 0;
  uint32_t early_launches_ = 0;
  uint32_t block_number_ = 0;
  bool ended_ = false;  // by a finding
  uint32_t barriers_ = 0;

  std::vector<std::vector<LaneAccess>> accesses_;  // of the block, by warp
  std::map<std::string, Traffic> traffic_;
  std::set<std::pair<Checker, const void*>> known_;
  std::vector<Finding> findings_;
};

/// The file and line of the instruction before `code`, as addr2line says.
std::string source_of(const void* code);
std::string source_of(const std::source_location& where);

}  // namespace quire::test::fibers
