#include "formats/mapping_registry.h"

#include <atomic>
#include <mutex>

namespace quire::formats {
namespace {

/// Entries are reused and never freed, so that a signal handler may walk the list at any time.
struct Entry {
  std::atomic<uintptr_t> begin = 0;  // 0: unused
  std::atomic<uintptr_t> end = 0;
  std::string path;  // changes only while the entry is unused
  Entry* next = nullptr;
};

std::atomic<Entry*> first = nullptr;

std::mutex& writing() {
  static std::mutex instance;
  return instance;
}

uintptr_t address_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

}  // namespace

void add_mapping(const std::byte* data, uint64_t size, const std::string& path) {
  const std::lock_guard lock(writing());
  Entry* entry = first.load();
  while (entry != nullptr && entry->begin.load() != 0) entry = entry->next;
  const bool fresh = entry == nullptr;
  if (fresh) {
    entry = new Entry;
    entry->next = first.load();
  }
  entry->path = path;
  entry->end.store(address_of(data) + size);
  entry->begin.store(address_of(data));
  if (fresh) first.store(entry);
}

void remove_mapping(const std::byte* data) {
  const std::lock_guard lock(writing());
  for (Entry* entry = first.load(); entry != nullptr; entry = entry->next) {
    if (entry->begin.load() == address_of(data)) entry->begin.store(0);
  }
}

const char* mapped_path_at(const void* address) {
  const uintptr_t at = address_of(address);
  for (const Entry* entry = first.load(); entry != nullptr; entry = entry->next) {
    const uintptr_t begin = entry->begin.load();
    if (begin != 0 && begin <= at && at < entry->end.load()) return entry->path.c_str();
  }
  return nullptr;
}

}  // namespace quire::formats
