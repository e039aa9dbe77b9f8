#pragma once

#include <chrono>
#include <cstdint>

#include "backend/cuda/cublaslt.h"

namespace quire::test::fibers {

/// cuBLASLt as its documentation describes it, as far as quire calls it, over the memory of
/// Device::current(). What it does not know it refuses with kNotSupported, what breaks a rule with
/// kInvalidValue; why() says which. Sums are f32, in the order of K. The first algorithm that it offers
/// splits K into parts, whose number depends on that of the columns of B: results of it differ from one batch
/// to another.
const backend::cuda::lt::Api& fake_cublaslt();

/// What is offered behind the first two algorithms, of which the second sums in the order of K.
enum class Offers {
  kFew,               // nothing
  kMany,              // one that divides K and does not say so, and more that sum in order
  kOneSumForFewRows,  // the same, but those that sum in order multiply no more than 64 rows
  kLate,              // nothing, and each product takes kLateBy longer than it needs
  kBackwards,         // nothing, and the second algorithm sums in the opposite order
  kLateBackwards,     // both
};
void offer(Offers which);
/// Offers that while it lives.
class Offering {
 public:
  explicit Offering(Offers which) { offer(which); }
  ~Offering() { offer(Offers::kFew); }
  Offering(const Offering&) = delete;
  Offering& operator=(const Offering&) = delete;
};
inline constexpr std::chrono::milliseconds kLateBy{80};

/// How many products have been computed, and how many of them by an algorithm that divides K.
uint64_t products();
uint64_t products_in_parts();

/// Why the last call was refused.
const char* why_cublaslt_refused();

}  // namespace quire::test::fibers
