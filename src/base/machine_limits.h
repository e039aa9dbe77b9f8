#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

// What this process may use of the machine: the least of what the system has and of what the process's
// control group (cgroup v1 or v2) and every group above it allow. Containers and systemd units set such
// limits, and a process that exceeds the one of memory is killed.
namespace quire {

struct MemoryLimit {
  /// That can be had without swapping, beside what is in use; the page cache counts as free.
  uint64_t bytes = 0;
  std::string source;  // the file that says so: "/proc/meminfo", "/sys/fs/cgroup/unit/memory.max"
};

/// nullopt where neither the system nor a group tells. A file that is missing or has an unexpected content
/// sets no limit. `root`: the folder whose proc/ and sys/ are read. Thread-safe.
std::optional<MemoryLimit> available_memory(const std::filesystem::path& root = "/");

struct CpuLimit {
  uint32_t threads = 1;  // that can run at once; of a quota of 1.5 CPUs: 2
  std::string source;    // "the CPU affinity" or the file that has the quota
};

/// The number of CPUs that this thread may run on, at least 1.
uint32_t affinity_cpus();

/// The least of `cpus` and of the quotas of all groups. Thread-safe.
CpuLimit usable_cpus(const std::filesystem::path& root = "/", uint32_t cpus = affinity_cpus());

}  // namespace quire
