#include "kernels/cpu/table.h"

namespace quire::cpu {

const KernelTable* native_table(IsaLevel) { return nullptr; }

}  // namespace quire::cpu
