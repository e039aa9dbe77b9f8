#include "tests/device_on_host/memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace quire::test::fibers {
namespace {

// Who read a byte last, where a thread's number does not say it: several threads of a warp (which one is in
// the lower bits) or of a block, or several blocks. A thread that forgets an earlier reader stands for it:
// either it came after that one, or the pair became one of these.
constexpr uint16_t kManyOfWarp = 0x8000;
constexpr uint16_t kManyOfBlock = 0xffff;
constexpr uint32_t kManyBlocks = 0xffffffff;

constexpr size_t kLine = 16;

static_assert(sizeof(Stamp) == 16, "stamps have no gaps, so that bytes can be compared");

uint32_t warp_of(uint16_t thread) {
  if (thread == kManyOfBlock) return kManyOfBlock;
  return (thread & kManyOfWarp) != 0 ? thread & ~kManyOfWarp : thread / kLanes;
}

}  // namespace

Region::Cells Region::make_cells(size_t count) {
  Cells cells(static_cast<Cell*>(std::calloc(count, sizeof(Cell))));
  if (cells == nullptr) throw std::bad_alloc();
  return cells;
}

Region::Region(std::string name, RegionKind kind, size_t bytes)
    : name_(std::move(name)),
      kind_(kind),
      size_(bytes),
      memory_(new std::byte[bytes + 3 * kRedZone]),
      data_(memory_.get() + kRedZone),
      written_(bytes),
      lines_(make_cells(bytes / kLine + 1)),
      split_(bytes / kLine + 1),
      cells_(make_cells(bytes + kLine)) {
  // Allocations of a device begin at multiples of 256.
  data_ += -reinterpret_cast<uintptr_t>(data_) % kRedZone;
  std::fill_n(memory_.get(), bytes + 3 * kRedZone, std::byte{0xff});
}

Region::Region(std::string name, const void* memory, size_t bytes)
    : name_(std::move(name)),
      kind_(RegionKind::kParameters),
      size_(bytes),
      data_(static_cast<std::byte*>(const_cast<void*>(memory))) {}

void Region::write(size_t first, const void* from, size_t bytes) {
  std::memcpy(data_ + first, from, bytes);
  mark_written(first, bytes);
}

void Region::mark_written(size_t first, size_t bytes) {
  std::fill_n(written_.begin() + static_cast<ptrdiff_t>(first), bytes, 1);
}

void Region::copy_written(size_t first, const Region& from, size_t from_first, size_t bytes) {
  std::copy_n(from.written_.begin() + static_cast<ptrdiff_t>(from_first), bytes,
              written_.begin() + static_cast<ptrdiff_t>(first));
}

bool Region::is_written(size_t first, size_t bytes) const {
  return std::memchr(written_.data() + first, 0, bytes) == nullptr;
}

size_t Region::bytes_written() const {
  return static_cast<size_t>(std::count(written_.begin(), written_.end(), 1));
}

void Region::note_work(const Streams::Work& work) {
  if (work_.size() <= work.stream) work_.resize(work.stream + 1);
  work_[work.stream] = std::max(work_[work.stream], work.number);
}

bool Region::is_complete(const std::vector<uint64_t>& waited) const {
  for (size_t stream = 0; stream < work_.size(); ++stream) {
    if (work_[stream] > (stream < waited.size() ? waited[stream] : 0)) return false;
  }
  return true;
}

bool Region::is_written_by(uint32_t launch, size_t first, size_t bytes) const {
  for (size_t at = first; at < first + bytes; ++at) {
    const Cell& cell = split_[at / kLine] != 0 ? cells_[at] : lines_[at / kLine];
    if (cell.write.launch == launch) return true;
  }
  return false;
}

bool Region::in_order(const Stamp& before, const Stamp& now) const {
  if (before.launch != now.launch) return true;
  if (before.block != now.block) return kind_ == RegionKind::kShared;
  if (before.barriers < now.barriers || before.thread == now.thread) return true;
  return warp_of(before.thread) == warp_of(now.thread) && before.warp_syncs < now.warp_syncs;
}

void Region::note_read(Stamp& last, const Stamp& now) const {
  if (in_order(last, now)) {
    last = now;
  } else if (last.block != now.block) {
    last.block = kManyBlocks;
  } else if (warp_of(last.thread) == warp_of(now.thread)) {
    last.thread = static_cast<uint16_t>(kManyOfWarp | warp_of(now.thread));
    last.warp_syncs = now.warp_syncs;
  } else {
    last.thread = kManyOfBlock;
  }
}

/// Notes the access in the cell of all its bytes, and returns what note() does.
const Stamp* Region::note_in(Cell& cell, bool write, const Stamp& now) {
  const bool after_write = in_order(cell.write, now);
  const bool after_read = !write || in_order(cell.read, now);
  const bool is_found = !after_write || !after_read;
  if (is_found) conflict_ = after_write ? cell.read : cell.write;
  if (write) {
    cell.write = now;
  } else {
    note_read(cell.read, now);
  }
  return is_found ? &conflict_ : nullptr;
}

const Stamp* Region::note(const Access& access, const Stamp& now) {
  const size_t first = access.address - begin();
  const size_t line = first / kLine;
  if (access.write) {
    std::fill_n(written_.begin() + static_cast<ptrdiff_t>(first), access.bytes, 1);
  }
  Cell* cells = cells_.get() + first;
  if (split_[line] == 0) {
    if (access.bytes == kLine) return note_in(lines_[line], access.write, now);
    std::fill_n(cells_.get() + line * kLine, kLine, lines_[line]);
    split_[line] = 1;
  }
  // The bytes mostly have the same past, and so the same of what follows.
  if (std::memcmp(cells, cells + 1, (access.bytes - 1) * sizeof(Cell)) == 0) {
    const Stamp* found = note_in(*cells, access.write, now);
    if (access.bytes == kLine) {
      lines_[line] = *cells;
      split_[line] = 0;
    } else {
      std::fill_n(cells + 1, access.bytes - 1, *cells);
    }
    return found;
  }
  const Stamp* found = nullptr;
  for (size_t i = 0; i < access.bytes; ++i) {
    if (const Stamp* one = note_in(cells[i], access.write, now)) found = one;
  }
  return found;
}

}  // namespace quire::test::fibers
