#include "base/machine_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUnlimited = uint64_t{1} << 60;  // v1 expresses "no limit" as a number of about 2^63

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

std::string first_line(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

/// "max" and "-1" also mean no limit.
std::optional<uint64_t> number_in(const fs::path& file) { return parse_number(first_line(file)); }

/// The number of a key in lines "KEY NUMBER", as in memory.stat, or "KEY: NUMBER".
std::optional<uint64_t> number_of(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(": \t", key.size());
    if (begin == key.size() || begin == std::string::npos) continue;
    return parse_number(std::string_view(line).substr(begin));
  }
  return std::nullopt;
}

/// mountinfo writes a blank in a path as \040.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      out.push_back(static_cast<char>(code));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool has_word(std::string_view list, std::string_view word) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

/// Where a hierarchy of groups is mounted. `root`: the group that is seen at `mount`.
struct Mount {
  bool v2 = false;
  fs::path mount;
  std::string root;
};

/// The v2 hierarchy, and the v1 hierarchy of `controller`.
std::vector<Mount> mounts_of(std::string_view controller, const fs::path& root) {
  std::vector<Mount> out;
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::string id, parent, device, group, mount, type, source, options;
    std::istringstream(line.substr(0, dash)) >> id >> parent >> device >> group >> mount;
    std::istringstream(line.substr(dash + 3)) >> type >> source >> options;
    const bool v2 = type == "cgroup2";
    if (mount.empty() || (!v2 && (type != "cgroup" || !has_word(options, controller)))) continue;
    out.push_back({v2, fs::path(without_escapes(mount)).relative_path(), without_escapes(group)});
  }
  return out;
}

/// This process's group in the v2 hierarchy or in the v1 hierarchy of `controller`; empty: unknown.
std::string own_group(std::string_view controller, bool v2, const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:memory:/a/b", of v2 "0::/a/b"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (v2 ? controllers.empty() : has_word(controllers, controller)) return line.substr(second + 1);
  }
  return {};
}

struct Group {
  bool v2 = false;
  fs::path dir;  // under the root
  bool own = false;
};

/// This process's groups that may have limits of `controller`, and all visible groups above them.
std::vector<Group> groups_of(std::string_view controller, const fs::path& root) {
  std::vector<Group> out;
  for (const Mount& mount : mounts_of(controller, root)) {
    const std::string group = own_group(controller, mount.v2, root);
    if (group.empty()) continue;
    // For a group outside of the mounted part, the mounted one is the nearest that can be read.
    fs::path below;
    if (mount.root == "/") {
      below = fs::path(group).relative_path();
    } else if (group.starts_with(mount.root + "/")) {
      below = group.substr(mount.root.size() + 1);
    }
    if (std::find(below.begin(), below.end(), "..") != below.end()) below.clear();
    std::error_code ignored;
    if (!fs::exists(root / mount.mount / below, ignored)) below.clear();
    for (bool own = true;; own = false) {
      out.push_back({mount.v2, mount.mount / below, own});
      if (below.empty()) break;
      below = below.parent_path();
    }
  }
  return out;
}

void lower(std::optional<MemoryLimit>& least, uint64_t bytes, const fs::path& file) {
  if (!least || bytes < least->bytes) least = MemoryLimit{bytes, (fs::path("/") / file).string()};
}

void apply_group(const Group& group, const fs::path& root, std::optional<MemoryLimit>& least) {
  const fs::path dir = root / group.dir;
  const fs::path stat = dir / "memory.stat";
  const char* inactive = group.v2 ? "inactive_file" : "total_inactive_file";
  const char* active = group.v2 ? "active_file" : "total_active_file";
  const uint64_t in_use =
      number_in(dir / (group.v2 ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const uint64_t cached = number_of(stat, inactive).value_or(0) + number_of(stat, active).value_or(0);
  const uint64_t used = in_use - std::min(in_use, cached);
  const auto limit = [&](std::optional<uint64_t> most, const char* file) {
    if (most && *most < kUnlimited) lower(least, *most - std::min(*most, used), group.dir / file);
  };
  if (group.v2) {
    limit(number_in(dir / "memory.max"), "memory.max");
    limit(number_in(dir / "memory.high"), "memory.high");
    return;
  }
  limit(number_in(dir / "memory.limit_in_bytes"), "memory.limit_in_bytes");
  // The minimum over all groups above, including invisible ones.
  if (group.own) limit(number_of(stat, "hierarchical_memory_limit"), "memory.stat");
}

}  // namespace

std::optional<MemoryLimit> available_memory(const fs::path& root) {
  std::optional<MemoryLimit> least;
  const fs::path meminfo = "proc/meminfo";
  if (const auto kib = number_of(root / meminfo, "MemAvailable"); kib && *kib < kUnlimited / 1024) {
    lower(least, *kib * 1024, meminfo);
  }
  for (const Group& group : groups_of("memory", root)) apply_group(group, root, least);
  return least;
}

uint32_t affinity_cpus() {
  // The kernel refuses a set that is smaller than its own, which may be of thousands of CPUs.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<uint32_t>(count);
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

CpuLimit usable_cpus(const fs::path& root, uint32_t cpus) {
  CpuLimit least{std::max(1U, cpus), "the CPU affinity"};
  for (const Group& group : groups_of("cpu", root)) {
    const fs::path file = group.dir / (group.v2 ? "cpu.max" : "cpu.cfs_quota_us");
    std::optional<uint64_t> quota;  // microseconds of each period
    std::optional<uint64_t> period;
    if (group.v2) {
      const std::string line = first_line(root / file);
      const size_t blank = line.find(' ');
      quota = parse_number(line);
      if (blank != std::string::npos) period = parse_number(std::string_view(line).substr(blank + 1));
    } else {
      quota = number_in(root / file);
      period = number_in(root / group.dir / "cpu.cfs_period_us");
    }
    if (!quota || !period || *quota == 0 || *period == 0) continue;
    const uint64_t threads = *quota / *period + (*quota % *period == 0 ? 0 : 1);
    if (threads < least.threads) least = {static_cast<uint32_t>(threads), (fs::path("/") / file).string()};
  }
  return least;
}

}  // namespace quire
