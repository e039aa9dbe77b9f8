#include "backend/cuda/gemm.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/few_rows.h"
#include "base/error.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kAnyRows = std::numeric_limits<uint32_t>::max();

[[noreturn]] void refuse(const GemmShape& shape, uint32_t rows, const std::string& why) {
  throw Error(fmt::format("CUDA: cuBLASLt does not multiply {} rows by {} weights [{}, {}]: {}", rows,
                          dtype_name(shape.dtype), shape.n, shape.k, why));
}

}  // namespace

const RowsChoice& Gemm::choice_of(const Plan& plan, uint32_t rows) {
  const auto serves = [rows](const RowsChoice& choice) { return choice.most_rows >= rows; };
  const auto found = std::ranges::find_if(plan.choices, serves);
  return found == plan.choices.end() ? plan.choices.back() : *found;
}

Gemm::Plan& Gemm::plan_of(const Key& key, const void* bias) {
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  Plan plan{LtProduct(lt_, key.shape, bias), {}};
  if (choice_ == GemmChoice::kSameForAllRows) {
    plan.choices.push_back({kAnyRows, first_for_all_rows(plan.product)});
  } else {
    const std::vector<lt::Algorithm> offered = plan.product.offered(key.rows, true);
    if (offered.empty()) refuse(key.shape, key.rows, "it has no algorithm");
    plan.choices.push_back({kAnyRows, offered.front()});
  }
  return plans_.emplace(key, std::move(plan)).first->second;
}

bool Gemm::prepare(const GemmShape& shape, std::span<const void* const> weights, const void* bias,
                   uint32_t most_rows) {
  if (choice_ == GemmChoice::kFastest) return prepare_few(shape, weights, bias);
  Plan& plan = plan_of({shape, 0}, bias);
  if (device_facts().free_bytes < bytes_of_choice(shape, padded_rows(most_rows))) return false;
  plan.choices = choose_for_all_rows(lt_, plan.product, weights, bias, padded_rows(most_rows));
  return true;
}

bool Gemm::prepare_few(const GemmShape& shape, std::span<const void* const> weights, const void* bias) {
  if (!few_rows_multiplies(shape.dtype, shape.out_dtype, shape.n, shape.k)) return true;
  if (device_facts().free_bytes < bytes_of_choice(shape, kGemmRows)) return false;
  const uint32_t most = most_few_rows(lt_, plan_of({shape, 1}, bias).product, weights, bias);
  for (uint32_t rows = 1; rows <= most; ++rows) {
    plan_of({shape, rows}, bias).choices = {{kAnyRows, std::nullopt}};
  }
  return true;
}

bool Gemm::takes_few_rows(const GemmShape& shape, uint32_t rows) const {
  const auto plan = plans_.find({shape, choice_ == GemmChoice::kFastest ? rows : 0});
  return plan != plans_.end() && !choice_of(plan->second, rows).algorithm;
}

void Gemm::multiply(const GemmArgs& args) {
  const bool fastest = choice_ == GemmChoice::kFastest;
  const uint32_t rows = fastest && args.rows < kGemmRows ? args.rows : padded_rows(args.rows);
  const GemmShape shape{args.dtype, args.out_dtype, args.n, args.k, args.bias != nullptr};
  Plan& plan = plan_of({shape, fastest ? rows : 0}, args.bias);
  const RowsChoice& choice = choice_of(plan, args.rows);
  if (!choice.algorithm) {
    check(few_rows({args.dtype, args.out_dtype, args.x, args.weights, args.bias, args.y, args.rows, args.n,
                    args.k},
                   lt_.stream()),
          "a product of few rows");
    return;
  }
  if (!plan.product.add(*choice.algorithm, {args.x, args.weights, args.bias, args.y, rows})) {
    refuse(shape, rows, plan.product.why_not());
  }
}

}  // namespace quire::backend::cuda
