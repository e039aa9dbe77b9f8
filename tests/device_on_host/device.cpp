#include "tests/device_on_host/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

namespace quire::test::fibers {
namespace {

Device* device = nullptr;  // not of a thread: an engine launches kernels in one of its own

std::string_view name_of(Checker checker) {
  switch (checker) {
    case Checker::kBounds:
      return "out of bounds";
    case Checker::kAlignment:
      return "misaligned";
    case Checker::kUninitialised:
      return "uninitialised";
    case Checker::kRace:
      return "race";
    case Checker::kConstant:
      return "not constant";
    case Checker::kBarrier:
      return "divergent barrier";
    case Checker::kEarly:
      return "early";
    case Checker::kUnderWay:
      return "under way";
    case Checker::kLane:
      return "missing lane";
    case Checker::kBankConflicts:
      return "bank conflicts";
    case Checker::kUncoalesced:
      return "uncoalesced";
    case Checker::kLaunch:
      return "launch";
  }
  return "";
}

/// What is left of a path from this project's folders on.
std::string without_folders(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// The file and line of the instruction before `code`; of those that inlining puts there, the innermost in a
/// source: a header's loads and stores are its users' doing.
std::string look_up(const void* code) {
  Dl_info info{};
  if (code == nullptr || dladdr(code, &info) == 0) return "?";
  const auto offset = static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase) - 1;
  const std::string command = fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", info.dli_fname, offset);
  FILE* lines = popen(command.c_str(), "r");
  if (lines == nullptr) return "?";
  std::string found = "?";
  char line[1024];
  while (std::fgets(line, sizeof(line), lines) != nullptr) {
    std::string text = without_folders(line);
    text = text.substr(0, text.find_first_of(" \n"));
    if (found == "?" || found.find(".h:") != std::string::npos) found = text;
  }
  pclose(lines);
  return found;
}

}  // namespace

std::string source_of(const std::source_location& where) {
  return fmt::format("{}:{}", without_folders(where.file_name()), where.line());
}

std::string source_of(const void* code) {
  // The program that knows is slow.
  static std::map<const void*, std::string> known;
  const auto [entry, is_new] = known.try_emplace(code);
  if (is_new) entry->second = look_up(code);
  return entry->second;
}

Device::Device(uint64_t seed, bool counts_traffic)
    : rng_(seed),
      streams_(seed),
      multiprocessor_shared_bytes_((seed / 2 % 2 == 0 ? 228 : 100) << 10),
      counts_traffic_(counts_traffic) {
  if (device != nullptr) throw std::logic_error("one device at a time");
  device = this;
}

Device::~Device() { device = nullptr; }

Device* Device::current() { return device; }

Region& Device::allocate(std::string name, size_t bytes) {
  return *regions_.emplace_back(std::make_unique<Region>(std::move(name), RegionKind::kGlobal, bytes));
}

void Device::free(const void* begin) {
  std::erase_if(regions_, [&](const auto& region) { return region->data() == begin; });
  last_found_ = nullptr;
}

size_t Device::bytes_allocated() const {
  size_t sum = 0;
  for (const auto& region : regions_) sum += region->size();
  return sum;
}

std::string Device::why_not(const void* at, size_t bytes, bool is_read) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const Region* region = find(address);
  if (region == nullptr) return fmt::format("{} is in no allocation", at);
  const size_t first = address - region->begin();
  if (bytes > region->size() - first) {
    return fmt::format("{} bytes from byte {} of {}, which has {}", bytes, first, region->name(),
                       region->size());
  }
  if (is_read && !region->is_written(first, bytes)) {
    return fmt::format("some of {} bytes from byte {} of {} were never written", bytes, first,
                       region->name());
  }
  return {};
}

void Device::copy(void* to, const void* from, size_t bytes) {
  const auto target = reinterpret_cast<uintptr_t>(to);
  const auto source = reinterpret_cast<uintptr_t>(from);
  std::memcpy(to, from, bytes);
  Region* target_region = find(target);
  if (target_region == nullptr) return;
  target_region->note_work(streams_.current());
  const size_t first = target - target_region->begin();
  if (const Region* region = find(source); region != nullptr) {
    target_region->copy_written(first, *region, source - region->begin(), bytes);
  } else {
    target_region->mark_written(first, bytes);
  }
}

void Device::mark_written(const void* at, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  Region* region = find(address);
  region->note_work(streams_.current());
  region->mark_written(address - region->begin(), bytes);
}

std::string Device::report() const {
  std::string all;
  for (const Finding& finding : findings_) all += finding.text + '\n';
  return all;
}

int Device::launch(const char* kernel, const backend::cuda::LaunchShape& shape, void (*call)(const void*),
                   const void* closure, size_t bytes) {
  constexpr uint32_t kMostRows = 65535;  // of a grid's y and z
  const backend::cuda::Grid& grid = shape.grid;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (blocks == 0 || grid.y > kMostRows || grid.z > kMostRows || shape.threads == 0 ||
      shape.threads > BlockRun::kMostThreads || shape.shared_bytes > backend::cuda::kMostSharedBytes) {
    kernel_ = kernel;
    block_ = {0, 0, 0};
    add(Checker::kLaunch, 0, 0, "?",
        fmt::format("{} blocks of {} threads and {} bytes of shared memory", blocks, shape.threads,
                    shape.shared_bytes));
    return 1;
  }
  const auto* from = static_cast<const std::byte*>(closure);
  streams_.add(shape.stream, [this, kernel, shape, call, parameters = std::vector(from, from + bytes),
                              waited = streams_.waited()] { run(kernel, shape, call, parameters, waited); });
  return 0;
}

void Device::run(const char* kernel, const backend::cuda::LaunchShape& shape, void (*call)(const void*),
                 const std::vector<std::byte>& parameters, const std::vector<uint64_t>& waited) {
  kernel_ = kernel;
  shape_ = shape;
  grid_ = shape.grid;
  call_ = call;
  closure_ = parameters.data();
  waited_ = waited;
  ended_ = false;
  known_.clear();
  ++launches_;
  if (shape.begins == backend::cuda::Begins::kEarly) ++early_launches_;
  if (shared_memory_ == nullptr || shared_memory_->size() != shape.shared_bytes) {
    shared_memory_ = std::make_unique<Region>("shared memory", RegionKind::kShared, shape.shared_bytes);
  }
  shared_ = regions_.emplace_back(std::move(shared_memory_)).get();
  regions_.push_back(std::make_unique<Region>("parameters", parameters.data(), parameters.size()));
  last_found_ = shared_;
  std::vector<uint32_t> order(size_t{grid_.x} * grid_.y * grid_.z);
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.below(i)]);
  for (const uint32_t number : order) {
    enter_block(number);
    if (!run_block()) break;
  }
  if (counts_traffic_ && !ended_) check_traffic();
  regions_.pop_back();
  shared_memory_ = std::move(regions_.back());
  regions_.pop_back();
  shared_ = nullptr;
  last_found_ = nullptr;
}

void Device::enter_block(uint32_t number) {
  block_number_ = number;
  block_ = {number % grid_.x, number / grid_.x % grid_.y, number / grid_.x / grid_.y};
}

/// Whether the launch may go on.
bool Device::run_block() {
  shared_->forget_writes();
  accesses_.assign((shape_.threads + kLanes - 1) / kLanes, {});
  copies_.enter_block(*shared_, shape_.threads);
  const Stamp first{.launch = launches_, .block = block_number_};
  if (const auto stuck = run_.run(shape_.threads, shape_.begins == backend::cuda::Begins::kEarly, first, rng_,
                                  call_, closure_)) {
    add(stuck->at_block_barrier ? Checker::kBarrier : Checker::kLane, stuck->thread, 0,
        source_of(stuck->where), stuck->text);
    ended_ = true;
  }
  if (!ended_) check_rest_of_copies();
  if (!ended_) check_waits();
  barriers_ = std::max(barriers_, run_.barriers());
  if (counts_traffic_) {
    Traffic& traffic = traffic_[kernel_];
    for (std::vector<LaneAccess>& of_warp : accesses_) traffic.add(of_warp);
  }
  return !ended_;
}

void Device::check_traffic() {
  const Traffic& traffic = traffic_[kernel_];
  const TrafficLimit& limit = traffic_limit(kernel_.c_str());
  const auto allowed = [](double factor, size_t count) { return factor * static_cast<double>(count); };
  if (static_cast<double>(traffic.bank_conflicts) > allowed(limit.conflicts, traffic.shared_accesses)) {
    const LaneAccess& worst = traffic.worst_bank;
    enter_block(worst.block);
    add(Checker::kBankConflicts, worst.thread, worst.access.address, source_of(worst.access.code),
        fmt::format("{} conflicts in {} accesses of shared memory; the worst has {}", traffic.bank_conflicts,
                    traffic.shared_accesses, traffic.worst_conflicts));
  }
  if (static_cast<double>(traffic.sectors) > allowed(limit.sectors, traffic.needed_sectors)) {
    const LaneAccess& worst = traffic.worst_sector;
    enter_block(worst.block);
    add(Checker::kUncoalesced, worst.thread, worst.access.address, source_of(worst.access.code),
        fmt::format("{} sectors moved where {} would do; the worst access moves {} too many", traffic.sectors,
                    traffic.needed_sectors, traffic.worst_excess));
  }
}

Region* Device::find(uintptr_t address) {
  if (last_found_ != nullptr && last_found_->has(address)) return last_found_;
  if (shared_ != nullptr && shared_->has(address)) return shared_;
  for (const auto& region : regions_) {
    if (region->has(address)) return last_found_ = region.get();
  }
  return nullptr;
}

void Device::on_access(const Access& access) {
  const Fiber& fiber = *BlockRun::running;
  if (fiber.owns(access.address)) return;
  Region* region = find(access.address);
  if (region == nullptr || access.bytes > region->begin() + region->size() - access.address ||
      (access.write && region->kind() == RegionKind::kParameters)) {
    end(Checker::kBounds, access, "");
  }
  if (region->kind() == RegionKind::kParameters) return;
  if (access.address % access.bytes != 0) end(Checker::kAlignment, access, "");
  if (!access.write && !access.carries_unwritten &&
      !region->is_written(access.address - region->begin(), access.bytes)) {
    add(Checker::kUninitialised, access, "; nobody wrote it");
  }
  if (region == shared_ && copies_.are_under_way(access.address, access.bytes)) {
    add(Checker::kUnderWay, access, "; a copy to it was not waited for");
  }
  if (fiber.is_early && region->kind() == RegionKind::kGlobal) check_early(access, *region);
  if (!access.write) region->count_read(access.bytes);
  if (access.write) region->note_work(streams_.current());
  check_order(access, *region);
  if (counts_traffic_) {
    accesses_[fiber.stamp.thread / kLanes].push_back({access, block_number_, fiber.stamp.thread,
                                                      fiber.stamp.barriers, fiber.stamp.warp_syncs,
                                                      region->kind() == RegionKind::kShared});
  }
}

/// Before the thread has waited.
void Device::check_early(const Access& access, const Region& region) {
  if (access.write) add(Checker::kEarly, access, "; it has not waited for earlier kernels");
  if (access.write || region.is_complete(waited_)) return;
  add(Checker::kEarly, access, "; it has not waited for earlier kernels, and who wrote there may still run");
}

/// Once the block has ended.
void Device::check_waits() {
  for (const Fiber& thread : run_.threads()) {
    if (!thread.is_early || !known_.emplace(Checker::kEarly, nullptr).second) continue;
    add(Checker::kEarly, thread.stamp.thread, 0, source_of(thread.next_from),
        "it ended without having waited for earlier kernels, and what comes next may not wait for these");
  }
}

/// A finding after which the launch does not go on. Never returns.
void Device::end(Checker checker, const Access& access, const std::string& what) {
  add(checker, access, what);
  ended_ = true;
  run_.stop();
}

void Device::check_order(const Access& access, Region& region) {
  const Stamp* other = region.note(access, BlockRun::running->stamp);
  if (other == nullptr) return;
  const std::string who = other->block != block_number_            ? "another block"
                          : other->thread < BlockRun::kMostThreads ? fmt::format("thread {}", other->thread)
                                                                   : "other threads";
  add(Checker::kRace, access, fmt::format("; {} accessed it, and no barrier is between", who));
}

/// What was not written in the source is not written in the copy either.
void Device::copy_global(void* to, const void* from, uint32_t bytes, const void* code) {
  const Access read{reinterpret_cast<uintptr_t>(from), bytes, false, code, true};
  const Access write{reinterpret_cast<uintptr_t>(to), bytes, true, code};
  for (const Access& access : {read, write}) {
    const Region* region = find(access.address);
    if (region == nullptr || region->kind() != RegionKind::kGlobal) {
      end(Checker::kBounds, access, "; this copy is within global memory");
    }
    on_access(access);
  }
  copy(to, from, bytes);
}

/// A copy reads and writes at some moment from here to its wait: both ends must be in order with others.
void Device::begin_copy(void* to, const void* from, uint32_t bytes, const void* code) {
  const Access read{reinterpret_cast<uintptr_t>(from), bytes, false, code};
  const Access write{reinterpret_cast<uintptr_t>(to), bytes, true, code};
  if (bytes != 4 && bytes != 8 && bytes != 16) end(Checker::kAlignment, write, "; a copy has 4, 8 or 16");
  const Region* source = find(read.address);
  if (source == nullptr || source->kind() != RegionKind::kGlobal) {
    end(Checker::kBounds, read, "; copies come from global memory");
  }
  on_access(read);
  if (find(write.address) != shared_) end(Checker::kBounds, write, "; copies go to shared memory");
  on_access(write);
  copies_.begin({.to = static_cast<std::byte*>(to),
                 .from = static_cast<const std::byte*>(from),
                 .bytes = bytes,
                 .code = code,
                 .thread = BlockRun::running->stamp.thread},
                rng_);
}

void Device::commit_copies() { copies_.commit(BlockRun::running->stamp.thread, rng_); }

void Device::wait_for_copies(uint32_t but) {
  for (const AsyncCopy& copy : copies_.wait(BlockRun::running->stamp.thread, but)) {
    const auto from = reinterpret_cast<uintptr_t>(copy.from);
    check_order({from, copy.bytes, false, copy.code}, *find(from));
    check_order({reinterpret_cast<uintptr_t>(copy.to), copy.bytes, true, copy.code}, *shared_);
  }
}

/// Once the block has ended.
void Device::check_rest_of_copies() {
  for (const AsyncCopy& copy : copies_.rest()) {
    if (!known_.emplace(Checker::kUnderWay, copy.code).second) continue;
    add(Checker::kUnderWay, copy.thread, reinterpret_cast<uintptr_t>(copy.to), source_of(copy.code),
        "the block ended before its copy was waited for");
  }
}

void Device::on_constant_read(const Access& access) {
  Region* region = find(access.address);
  // Anything else that is wrong with it is found when it is carried out.
  if (region == nullptr || region->kind() == RegionKind::kParameters ||
      !region->has(access.address + access.bytes - 1))
    return;
  if (region->is_written_by(launches_, access.address - region->begin(), access.bytes)) {
    add(Checker::kConstant, access, "; this launch wrote it, and the load is for memory that nobody writes");
  }
}

void Device::add(Checker checker, const Access& access, const std::string& what) {
  // Once for each place of the code.
  if (!known_.emplace(checker, access.code).second) return;
  add(checker, BlockRun::running->stamp.thread, access.address, source_of(access.code),
      fmt::format("{} {} bytes {}{}", access.write ? "writes" : "reads", access.bytes, place(access.address),
                  what));
}

void Device::add(Checker checker, uint32_t thread, uintptr_t address, const std::string& source,
                 const std::string& what) {
  findings_.push_back({checker, kernel_, block_, thread, address, source,
                       fmt::format("{}: {}, block ({}, {}, {}), thread {}, at {}: {}", name_of(checker),
                                   kernel_, block_.x, block_.y, block_.z, thread, source, what)});
}

std::string Device::place(uintptr_t address) const {
  for (const auto& region : regions_) {
    if (region->kind() == RegionKind::kParameters || !region->is_near(address)) continue;
    const auto offset = static_cast<intptr_t>(address - region->begin());
    if (region->has(address))
      return fmt::format("at {} of {} ({} bytes)", offset, region->name(), region->size());
    if (offset < 0) return fmt::format("{} bytes before {}", -offset, region->name());
    return fmt::format("{} bytes behind {} ({} bytes)", offset - static_cast<intptr_t>(region->size()),
                       region->name(), region->size());
  }
  return fmt::format("at {:#x}, which no allocation is near", address);
}

}  // namespace quire::test::fibers

// What src/backend/cuda/device.h calls where there is no device.
namespace quire::backend::cuda::host {

using test::fibers::BlockRun;
using test::fibers::Device;
using test::fibers::Wait;

uint32_t thread() { return BlockRun::running->stamp.thread; }
Grid block() { return Device::current()->block(); }
Grid grid() { return Device::current()->grid(); }
void* shared_memory() { return Device::current()->shared_memory(); }

void sync_block(Where where) { Device::current()->block_run().wait(Wait::kBlock, 0, where); }

void sync_warp(uint32_t mask, Where where) { Device::current()->block_run().wait(Wait::kWarp, mask, where); }

uint32_t shuffle(uint32_t mask, uint32_t bits, uint32_t from_lane, Where where) {
  BlockRun::running->bits = bits;
  BlockRun::running->from_lane = from_lane;
  Device::current()->block_run().wait(Wait::kShuffle, mask, where);
  return BlockRun::running->bits;
}

void gather(const void* own, size_t bytes, void* all, Where where) {
  BlockRun::running->given = own;
  BlockRun::running->given_bytes = bytes;
  Device::current()->block_run().wait(Wait::kGather, kWholeWarp, where);
  std::memcpy(all, Device::current()->block_run().gathered(), kWarp * bytes);
}

void read_constant(const void* from, size_t bytes) {
  Device::current()->on_constant_read({.address = reinterpret_cast<uintptr_t>(from),
                                       .bytes = static_cast<uint32_t>(bytes),
                                       .code = __builtin_return_address(0)});
}

void copy_global(void* to, const void* from, uint32_t bytes) {
  Device::current()->copy_global(to, from, bytes, __builtin_return_address(0));
}

void copy_async(void* to, const void* from, uint32_t bytes) {
  Device::current()->begin_copy(to, from, bytes, __builtin_return_address(0));
}
void commit_copies() { Device::current()->commit_copies(); }
void wait_for_copies(uint32_t but) { Device::current()->wait_for_copies(but); }

void let_next_begin(Where where) { Device::current()->let_next_begin(where); }
void wait_for_earlier() { Device::current()->wait_for_earlier(); }

uint32_t multiprocessor_shared_bytes() { return Device::current()->multiprocessor_shared_bytes(); }

LaunchError launch(const char* kernel, const LaunchShape& shape, void (*call)(const void* closure),
                   const void* closure, size_t bytes) {
  if (Device::current() == nullptr) throw std::logic_error("a kernel without a device");
  return Device::current()->launch(kernel, shape, call, closure, bytes);
}

}  // namespace quire::backend::cuda::host
