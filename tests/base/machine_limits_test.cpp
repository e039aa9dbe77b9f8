// What a process may use, from made-up proc/ and sys/ trees.
#include "base/machine_limits.h"

#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/support/units.h"

namespace quire {
namespace {

using test::kMiB;
constexpr const char* kV2Mount = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kV1Mounts =
    "31 30 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr const char* kNoV1Limit = "9223372036854771712\n";

class MachineLimits : public testing::Test {
 protected:
  void SetUp() override {
    root_ = test::temp_dir() / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 100 kB\nMemAvailable:    8388608 kB\n");
  }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void v2_group(const std::string& group, const std::map<std::string, std::string>& files) const {
    for (const auto& [name, text] : files) write("sys/fs/cgroup" + group + "/" + name, text);
  }

  uint64_t mib() const { return available_memory(root_).value().bytes / kMiB; }
  std::string source() const { return available_memory(root_).value().source; }
  uint32_t cpus(uint32_t affinity = 8) const { return usable_cpus(root_, affinity).threads; }

  std::filesystem::path root_;
};

std::string mebibytes(uint64_t count) { return std::to_string(count * kMiB) + "\n"; }

std::string v2_stat(uint64_t inactive, uint64_t active) {
  return "anon 12345\ninactive_anon 7\nactive_anon 8\ninactive_file " + mebibytes(inactive) + "active_file " +
         mebibytes(active) + "slab 99\n";
}

TEST_F(MachineLimits, WithoutGroupsTheSystemDecides) {
  EXPECT_EQ(mib(), 8192U);
  EXPECT_EQ(source(), "/proc/meminfo");
  EXPECT_EQ(cpus(), 8U);
  EXPECT_EQ(usable_cpus(root_, 0).threads, 1U);
  write("proc/meminfo", "");
  EXPECT_FALSE(available_memory(root_));
}

TEST_F(MachineLimits, AGroupOfVersion2) {
  write("proc/self/mountinfo", kV2Mount);
  write("proc/self/cgroup", "0::/unit\n");
  v2_group("/unit", {{"memory.max", mebibytes(400)},
                     {"memory.high", "max\n"},
                     {"memory.current", mebibytes(350)},
                     {"memory.stat", v2_stat(200, 100)},
                     {"cpu.max", "150000 100000\n"}});
  EXPECT_EQ(mib(), 350U);  // 50 of 350 are not of files
  EXPECT_EQ(source(), "/sys/fs/cgroup/unit/memory.max");
  EXPECT_EQ(cpus(), 2U);
  EXPECT_EQ(usable_cpus(root_, 8).source, "/sys/fs/cgroup/unit/cpu.max");
  EXPECT_EQ(cpus(1), 1U);
  EXPECT_EQ(usable_cpus(root_, 1).source, "the CPU affinity");
  v2_group("/unit", {{"memory.high", mebibytes(300)}});
  EXPECT_EQ(mib(), 250U);
  EXPECT_EQ(source(), "/sys/fs/cgroup/unit/memory.high");
  v2_group("/unit", {{"memory.current", mebibytes(900)}});
  EXPECT_EQ(mib(), 0U);  // and not less
}

TEST_F(MachineLimits, ThePageCacheCountsAsFree) {
  write("proc/self/mountinfo", kV2Mount);
  write("proc/self/cgroup", "0::/unit\n");
  v2_group(
      "/unit",
      {{"memory.max", mebibytes(400)}, {"memory.current", mebibytes(20)}, {"memory.stat", v2_stat(0, 0)}});
  const uint64_t cold = mib();
  v2_group("/unit", {{"memory.current", mebibytes(390)}, {"memory.stat", v2_stat(170, 200)}});
  EXPECT_EQ(mib(), cold);
}

TEST_F(MachineLimits, EveryGroupAboveCounts) {
  write("proc/self/mountinfo", kV2Mount);
  write("proc/self/cgroup", "0::/a/b/c\n");
  v2_group("/a/b/c",
           {{"memory.max", "max\n"}, {"memory.current", mebibytes(10)}, {"cpu.max", "max 100000\n"}});
  v2_group(
      "/a/b",
      {{"memory.max", mebibytes(1000)}, {"memory.current", mebibytes(100)}, {"cpu.max", "600000 100000"}});
  v2_group("/a", {{"memory.max", mebibytes(1200)},
                  {"memory.current", mebibytes(800)},
                  {"memory.stat", v2_stat(50, 50)},
                  {"cpu.max", "50000 25000\n"}});
  EXPECT_EQ(mib(), 500U);
  EXPECT_EQ(source(), "/sys/fs/cgroup/a/memory.max");
  EXPECT_EQ(cpus(), 2U);
  v2_group("/a", {{"memory.max", "max\n"}, {"cpu.max", "max 100000\n"}});
  EXPECT_EQ(mib(), 900U);
  EXPECT_EQ(cpus(), 6U);
}

TEST_F(MachineLimits, AGroupOfVersion1) {
  write("proc/self/mountinfo", kV1Mounts);
  write("proc/self/cgroup", "5:memory:/box/inner\n4:cpu,cpuacct:/box\n1:name=systemd:/x\n");
  const std::string memory = "sys/fs/cgroup/memory";
  write(memory + "/memory.limit_in_bytes", kNoV1Limit);
  write(memory + "/box/memory.limit_in_bytes", mebibytes(600));
  write(memory + "/box/memory.usage_in_bytes", mebibytes(500));
  write(memory + "/box/memory.stat", "inactive_file 1\nactive_file 1\nhierarchical_memory_limit " +
                                         mebibytes(100) + "total_inactive_file " + mebibytes(100) +
                                         "total_active_file " + mebibytes(150));
  write(memory + "/box/inner/memory.limit_in_bytes", kNoV1Limit);
  write(memory + "/box/inner/memory.usage_in_bytes", mebibytes(50));
  write(memory + "/box/inner/memory.stat", "hierarchical_memory_limit " + mebibytes(600));
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(mib(), 350U);
  EXPECT_EQ(source(), "/sys/fs/cgroup/memory/box/memory.limit_in_bytes");
  EXPECT_EQ(cpus(), 3U);
  // A group above that is not mounted here.
  write(memory + "/box/inner/memory.stat", "hierarchical_memory_limit " + mebibytes(200));
  EXPECT_EQ(mib(), 150U);
  EXPECT_EQ(source(), "/sys/fs/cgroup/memory/box/inner/memory.stat");
}

TEST_F(MachineLimits, HybridHierarchies) {
  write("proc/self/mountinfo",
        std::string(kV1Mounts) + "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "5:memory:/old\n0::/new\n");
  write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", mebibytes(700));
  write("sys/fs/cgroup/unified/new/cpu.max", "100000 100000\n");
  EXPECT_EQ(mib(), 700U);
  EXPECT_EQ(cpus(), 1U);
  write("sys/fs/cgroup/unified/new/memory.max", mebibytes(300));
  EXPECT_EQ(mib(), 300U);
}

TEST_F(MachineLimits, AContainerSeesAPartOfTheHierarchy) {
  // The group's path is the host's, and what is mounted begins with it.
  write("proc/self/mountinfo",
        "32 30 0:28 /docker/0123 /sys/fs/cgroup/memory ro,nosuid master:11 - cgroup cgroup rw,memory\n"
        "40 30 0:28 / /a\\040b rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "5:memory:/docker/0123/sub\n0::/../../outside\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", mebibytes(800));
  EXPECT_EQ(mib(), 800U);
  write("sys/fs/cgroup/memory/sub/memory.limit_in_bytes", mebibytes(500));
  EXPECT_EQ(mib(), 500U);
  write("a b/memory.max", mebibytes(250));  // nearest to what lies outside
  EXPECT_EQ(mib(), 250U);
  write("proc/self/cgroup", "5:memory:/elsewhere\n");
  EXPECT_EQ(mib(), 800U);
}

TEST_F(MachineLimits, DamagedFilesSetNoLimit) {
  write("proc/self/mountinfo", std::string("\n - \nx y - cgroup2\n36 35 - - - -\n") + kV2Mount + "cut off");
  for (const char* group : {"", "nonsense", ":", "::", "0:", "0::unit", "0::/absent/too", "4:memory"}) {
    write("proc/self/cgroup", group);
    EXPECT_EQ(mib(), 8192U) << group;
    EXPECT_EQ(cpus(), 8U) << group;
  }
  write("proc/self/cgroup", "0::/unit\n");
  for (const char* text : {"", "\n", "max", "-5", "many", "99999999999999999999999", " 3"}) {
    v2_group("/unit",
             {{"memory.max", text}, {"memory.stat", text}, {"memory.current", text}, {"cpu.max", text}});
    EXPECT_EQ(mib(), 8192U) << text;
    EXPECT_EQ(cpus(), 8U) << text;
  }
  for (const char* text : {"0 100000", "100000 0", "100000", "100000 ", "100000 max"}) {
    v2_group("/unit", {{"cpu.max", text}});
    EXPECT_EQ(cpus(), 8U) << text;
  }
  for (const char* text :
       {"MemAvailable", "MemAvailable:", "MemAvailable: many kB", "MemAvailable: 99999999999999999 kB"}) {
    write("proc/meminfo", text);
    EXPECT_FALSE(available_memory(root_)) << text;
  }
}

TEST(MachineLimitsHere, ThisMachineHasSome) {
  EXPECT_GE(affinity_cpus(), 1U);
  EXPECT_LE(usable_cpus().threads, affinity_cpus());
  ASSERT_TRUE(available_memory());
  EXPECT_GT(available_memory()->bytes, kMiB);
}

}  // namespace
}  // namespace quire
