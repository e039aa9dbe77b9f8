#pragma once

#include <ostream>

#include <rapidcheck.h>

#include "tests/control/property/story.h"

namespace quire::test {

/// Stories like this one but simpler: without some of its operations, with policies that are the default,
/// with smaller numbers.
rc::Seq<Story> simpler(const Story& story);

/// How RapidCheck prints one.
void showValue(const Story& story, std::ostream& out);

}  // namespace quire::test

template <>
struct rc::Arbitrary<quire::test::Story> {
  static rc::Gen<quire::test::Story> arbitrary();
};
