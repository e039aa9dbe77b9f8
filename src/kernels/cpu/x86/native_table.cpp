#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/cpu/x86/features.h"
#include "kernels/cpu/x86/tables.h"

namespace quire::kernels::cpu {
namespace {

void set(KernelTable& table, WeightFormat format, const MatmulKernel& kernel) {
  table.matmul[static_cast<size_t>(format)] = kernel;
}

KernelTable with_blocks(KernelTable table, const MatmulKernel (&blocks)[4]) {
  std::copy(std::begin(blocks), std::end(blocks), table.matmul + static_cast<size_t>(WeightFormat::kQ8_0));
  return table;
}

/// All of AVX2, with integers multiplied by AVX-VNNI.
KernelTable avx2_with_vnni() {
  KernelTable made = with_blocks(avx2::kTable, avx2_vnni::kBlocks);
  set(made, WeightFormat::kInt8, avx2_vnni::kInt8);
  set(made, WeightFormat::kInt4, avx2_vnni::kInt4);
  made.attention[kv_index(DType::kI8)] = avx2_vnni::kInt8Attention;
  return made;
}

/// All of AVX-512, with matmuls of its own.
KernelTable avx512_with(IsaLevel level) {
  const bool tiles = level == IsaLevel::kAmx;
  KernelTable made = with_blocks(avx512::kTable, tiles ? avx512_vnni::kNearBlocks : avx512_vnni::kBlocks);
  if (tiles) {
    set(made, WeightFormat::kBF16, amx::kBf16);
    set(made, WeightFormat::kInt8, amx::kInt8);
    set(made, WeightFormat::kInt4, amx::kInt4);
    made.attention[kv_index(DType::kBF16)] = amx::kBf16Attention;
    made.attention[kv_index(DType::kI8)] = amx::kInt8Attention;
    return made;
  }
  set(made, WeightFormat::kInt8, avx512_vnni::kInt8);
  set(made, WeightFormat::kInt4, avx512_vnni::kInt4);
  made.attention[kv_index(DType::kI8)] = avx512_vnni::kInt8Attention;
  if (level == IsaLevel::kAvx512Bf16) {
    set(made, WeightFormat::kBF16, avx512_bf16::kBf16);
    set(made, WeightFormat::kInt4, avx512_vnni::kScaledInt4);
    made.attention[kv_index(DType::kBF16)] = avx512_bf16::kBf16Attention;
    made.attention[kv_index(DType::kI8)] = avx512_bf16::kInt8Attention;
  }
  return made;
}

}  // namespace

const KernelTable* native_table(IsaLevel level) {
  const Features& here = features();
  static const KernelTable avx2 = with_blocks(avx2::kTable, avx2::kBlocks);
  static const KernelTable avx2_vnni = avx2_with_vnni();
  static const KernelTable avx512 = with_blocks(avx512::kTable, avx2::kBlocks);
  static const KernelTable with_vnni = avx512_with(IsaLevel::kAvx512Vnni);
  static const KernelTable with_bf16 = avx512_with(IsaLevel::kAvx512Bf16);
  static const KernelTable with_amx = avx512_with(IsaLevel::kAmx);
  switch (level) {
    case IsaLevel::kAvx2:
      return here.avx2 ? &avx2 : nullptr;
    case IsaLevel::kAvx2Vnni:
      return here.avx2_vnni ? &avx2_vnni : nullptr;
    case IsaLevel::kAvx512:
      return here.avx512 ? &avx512 : nullptr;
    case IsaLevel::kAvx512Vnni:
      return here.vnni ? &with_vnni : nullptr;
    case IsaLevel::kAvx512Bf16:
      return here.bf16 ? &with_bf16 : nullptr;
    case IsaLevel::kAmx:
      return here.amx ? &with_amx : nullptr;
    case IsaLevel::kReference:
      return nullptr;
  }
  return nullptr;
}

std::vector<IsaLevel> native_levels() {
  std::vector<IsaLevel> order = {IsaLevel::kAvx2,       IsaLevel::kAvx2Vnni,   IsaLevel::kAvx512,
                                 IsaLevel::kAvx512Vnni, IsaLevel::kAvx512Bf16, IsaLevel::kAmx};
  if (features().bf16_dot_is_slow) std::swap(order[3], order[4]);
  std::erase_if(order, [](IsaLevel level) { return native_table(level) == nullptr; });
  return order;
}

}  // namespace quire::kernels::cpu
