#include "engine/mask_source.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::engine {

void MaskSources::add(SeqId seq, std::unique_ptr<MaskSource> source) {
  if (sources_.try_emplace(number(seq), std::move(source)).second) return;
  throw Error(
      fmt::format("the mask source of sequence {} has the number of a sequence that still lives", seq));
}

}  // namespace quire::engine
