#include "record/run_format.h"

#include <zlib.h>

namespace quire::record {
namespace {

void append(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t take(std::string_view& from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t{static_cast<uint8_t>(from[static_cast<size_t>(i)])} << (8 * i);
  from.remove_prefix(static_cast<size_t>(bytes));
  return value;
}

}  // namespace

uint32_t checksum(std::string_view bytes, uint32_t before) {
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string block_head(uint32_t number, uint64_t steps, std::string_view index, std::string_view records,
                       uint32_t seed) {
  std::string out;
  out.reserve(BlockHead::kBytes);
  append(out, BlockHead::kMark, 4);
  append(out, number, 4);
  append(out, steps, 8);
  append(out, index.size(), 4);
  append(out, records.size(), 4);
  append(out, checksum(index, seed), 4);
  append(out, checksum(records, seed), 4);
  append(out, checksum(out, seed), 4);
  return out;
}

bool read_block_head(std::string_view bytes, uint32_t seed, BlockHead& out) {
  const uint32_t check = checksum(bytes.substr(0, BlockHead::kBytes - 4), seed);
  out.mark = static_cast<uint32_t>(take(bytes, 4));
  out.number = static_cast<uint32_t>(take(bytes, 4));
  out.steps = take(bytes, 8);
  out.index_bytes = static_cast<uint32_t>(take(bytes, 4));
  out.record_bytes = static_cast<uint32_t>(take(bytes, 4));
  out.index_check = static_cast<uint32_t>(take(bytes, 4));
  out.record_check = static_cast<uint32_t>(take(bytes, 4));
  out.head_check = static_cast<uint32_t>(take(bytes, 4));
  return out.mark == BlockHead::kMark && out.head_check == check;
}

}  // namespace quire::record
