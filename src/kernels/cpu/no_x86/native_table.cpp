#include "kernels/cpu/table.h"

namespace quire::kernels::cpu {

const KernelTable* native_table(IsaLevel) { return nullptr; }

const PackTable* native_pack_table(IsaLevel) { return nullptr; }

std::vector<IsaLevel> native_levels() { return {}; }

}  // namespace quire::kernels::cpu
