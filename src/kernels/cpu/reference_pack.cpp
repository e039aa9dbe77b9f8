// The plain version of packing: what the vectorised ones are tested against.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/quantize.h"

namespace quire::kernels::cpu {
namespace {

void interleave(const std::byte* const* rows, size_t num_rows, size_t units, std::byte* to) {
  for (size_t unit = 0; unit < units; ++unit) {
    for (size_t row = 0; row < num_rows; ++row, to += 4) {
      if (rows[row] == nullptr) {
        std::memset(to, 0, 4);
      } else {
        std::memcpy(to, rows[row] + unit * 4, 4);
      }
    }
  }
}

void int4_panel(const float* rows, size_t k, float*, std::byte* to, float* scales, int32_t* offsets) {
  const size_t groups = k / kInt4Group;
  std::vector<int8_t> integers(k);
  std::vector<int8_t> group_scales(groups);
  for (size_t row = 0; row < kPanelWidth; ++row) {
    scales[row] = quantize_int4(rows + row * k, k, integers.data(), group_scales.data());
    int32_t sum = 0;
    for (size_t group = 0; group < groups; ++group) {
      std::byte* begin = to + group * kInt4GroupBytes;
      begin[row] = static_cast<std::byte>(group_scales[group]);
      const int8_t* from = integers.data() + group * kInt4Group;
      for (size_t i = 0; i < kInt4Group; ++i) sum += from[i] * group_scales[group];
      for (size_t i = 0; i < kInt4Group; i += 8) {
        std::byte* pair = begin + kPanelWidth + (i / 8 * kPanelWidth + row) * 4;
        for (size_t j = 0; j < 4; ++j) {
          pair[j] = static_cast<std::byte>((from[i + j] + 8) | ((from[i + 4 + j] + 8) << 4));
        }
      }
    }
    offsets[row] = 128 * sum;
  }
}

}  // namespace

const PackTable& reference_pack_table() {
  static constexpr PackTable kTable = {.interleave = interleave, .int4_panel = int4_panel};
  return kTable;
}

}  // namespace quire::kernels::cpu
