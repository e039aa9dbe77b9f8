#pragma once

#include "engine/mask_source.h"

namespace quire::grammar {

/// Mask sources that permit an answer if a source of `a` or one of `b` does.
engine::MakeMaskSource either(engine::MakeMaskSource a, engine::MakeMaskSource b);

}  // namespace quire::grammar
