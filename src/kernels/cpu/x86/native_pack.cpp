#include "kernels/cpu/table.h"
#include "kernels/cpu/x86/pack_tables.h"

namespace quire::kernels::cpu {

const PackTable* native_pack_table(IsaLevel level) {
  if (native_table(level) == nullptr) return nullptr;
  return level == IsaLevel::kAvx2 || level == IsaLevel::kAvx2Vnni ? &avx2::kPackTable : &avx512::kPackTable;
}

}  // namespace quire::kernels::cpu
