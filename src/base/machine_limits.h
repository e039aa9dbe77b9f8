#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

// The resources of the machine that this process may use: the minimum of what the system has and what the
// process's control group (cgroup v1 or v2) and every group above it allow. Containers and systemd units set
// such limits, and a process that exceeds the memory limit is killed.
namespace quire {

struct MemoryLimit {
  /// Memory that can still be allocated without swapping; the page cache counts as free.
  uint64_t bytes = 0;
  std::string source;  // the file that states the limit: "/proc/meminfo", "/sys/fs/cgroup/unit/memory.max"
};

/// nullopt if neither the system nor a group states a limit. A file that is missing or has unexpected content
/// sets no limit. `root`: the folder whose proc/ and sys/ are read. Thread-safe.
std::optional<MemoryLimit> available_memory(const std::filesystem::path& root = "/");

struct CpuLimit {
  uint32_t threads = 1;  // threads that can run at once; 2 for a quota of 1.5 CPUs
  std::string source;    // "the CPU affinity", or the file that has the quota
};

/// The number of CPUs that this thread may run on, at least 1.
uint32_t affinity_cpus();

/// The minimum of `cpus` and the quotas of all groups. Thread-safe.
CpuLimit usable_cpus(const std::filesystem::path& root = "/", uint32_t cpus = affinity_cpus());

}  // namespace quire
