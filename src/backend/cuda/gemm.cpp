#include "backend/cuda/gemm.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quire::backend::cuda {
namespace {

constexpr int kMostAlgorithms = 16;

lt::DataType type_of(DType dtype) {
  if (dtype == DType::kF32) return lt::kRealF32;
  return dtype == DType::kF16 ? lt::kRealF16 : lt::kRealBF16;
}

}  // namespace

Gemm::Gemm(const lt::Api& api, Stream stream, GemmChoice choice)
    : api_(api), stream_(stream), choice_(choice), workspace_(kGemmWorkspace, "cuBLASLt's workspace") {
  check_lt(api_.Create(&handle_), "cublasLtCreate", {});
}

Gemm::~Gemm() {
  plans_.clear();
  api_.Destroy(handle_);
}

void Gemm::check_lt(lt::Status status, const char* call, const Shape& shape) const {
  if (status == lt::kSuccess) return;
  throw Error(fmt::format("CUDA: {}: {} ({} weights [{}, {}])", call, api_.GetStatusString(status),
                          dtype_name(shape.dtype), shape.n, shape.k));
}

Gemm::Layout Gemm::layout(DType dtype, uint32_t rows, uint32_t columns, uint32_t stride,
                          const Shape& shape) const {
  lt::Layout* made = nullptr;
  check_lt(api_.MatrixLayoutCreate(&made, type_of(dtype), rows, columns, stride),
           "cublasLtMatrixLayoutCreate", shape);
  return {made, api_.MatrixLayoutDestroy};
}

const Gemm::Plan& Gemm::plan_of(const Shape& shape, const void* bias) {
  const auto known = plans_.find(shape);
  if (known != plans_.end()) return known->second;
  return plans_.emplace(shape, make_plan(shape, bias)).first->second;
}

/// cuBLASLt's matrices are column-major, so a row-major y [rows, n] is its [n, rows], and y = x W^T is
/// computed as y^T = W x^T: its A is W, which it sees as [k, n] and transposes, and its B is x, seen as
/// [k, rows].
Gemm::Plan Gemm::make_plan(const Shape& shape, const void* bias) const {
  lt::Operation* operation = nullptr;
  check_lt(api_.MatmulDescCreate(&operation, lt::kComputeF32, lt::kRealF32), "cublasLtMatmulDescCreate",
           shape);
  Plan plan{{operation, api_.MatmulDescDestroy}, layout(shape.dtype, shape.k, shape.n, shape.k, shape), {}};
  const auto set = [&](lt::OperationAttribute attribute, const auto& value) {
    check_lt(api_.MatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute", shape);
  };
  set(lt::kTransA, lt::kTransposed);
  set(lt::kTransB, lt::kAsItIs);
  if (shape.bias) {
    set(lt::kEpilogue, lt::kAddBias);
    set(lt::kBiasDataType, type_of(shape.dtype));
    set(lt::kBiasPointer, bias);  // for its alignment; each call sets its own
  }
  plan.algorithm = choose_algorithm(shape, plan);
  return plan;
}

/// The best for the shape's rows. Of kSameForAllRows these are one group, and it then serves any number.
lt::Algorithm Gemm::choose_algorithm(const Shape& shape, const Plan& plan) const {
  lt::Preference* preference = nullptr;
  check_lt(api_.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate", shape);
  const std::unique_ptr<lt::Preference, lt::Status (*)(lt::Preference*)> owned(preference,
                                                                               api_.MatmulPreferenceDestroy);
  const auto set = [&](lt::PreferenceAttribute attribute, const auto& value) {
    check_lt(api_.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
             "cublasLtMatmulPreferenceSetAttribute", shape);
  };
  set(lt::kMaxWorkspace, uint64_t{kGemmWorkspace});
  if (choice_ == GemmChoice::kSameForAllRows) set(lt::kReductionSchemes, uint32_t{0});
  const Layout x = layout(shape.dtype, shape.k, shape.rows, shape.k, shape);
  const Layout y =
      layout(shape.out_dtype, shape.n, shape.rows, result_stride(shape.n, shape.out_dtype), shape);
  lt::Heuristic found[kMostAlgorithms];
  int count = 0;
  check_lt(api_.MatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.weights.get(), x.get(), y.get(),
                                       y.get(), preference, kMostAlgorithms, found, &count),
           "cublasLtMatmulAlgoGetHeuristic", shape);
  for (int i = 0; i < count; ++i) {
    if (found[i].status != lt::kSuccess) continue;
    if (choice_ == GemmChoice::kFastest) return found[i].algorithm;
    int32_t parts = 0;
    size_t written = 0;
    check_lt(
        api_.MatmulAlgoConfigGetAttribute(&found[i].algorithm, lt::kSplitK, &parts, sizeof(parts), &written),
        "cublasLtMatmulAlgoConfigGetAttribute", shape);
    if (parts <= 1) return found[i].algorithm;
  }
  const bool any = choice_ == GemmChoice::kFastest;
  check_lt(lt::kNotSupported, any ? "no algorithm" : "no algorithm that does not split K", shape);
  return {};
}

void Gemm::multiply(const GemmArgs& args) {
  const bool fastest = choice_ == GemmChoice::kFastest;
  const uint32_t rows = fastest && args.rows < kGemmRows ? args.rows : padded_rows(args.rows);
  const Shape shape{.dtype = args.dtype,
                    .out_dtype = args.out_dtype,
                    .n = args.n,
                    .k = args.k,
                    .bias = args.bias != nullptr,
                    .rows = fastest ? rows : kGemmRows};
  const Plan& plan = plan_of(shape, args.bias);
  if (shape.bias) {
    check_lt(
        api_.MatmulDescSetAttribute(plan.operation.get(), lt::kBiasPointer, &args.bias, sizeof(args.bias)),
        "cublasLtMatmulDescSetAttribute", shape);
  }
  const Layout x = layout(args.dtype, args.k, rows, args.k, shape);
  const Layout y = layout(args.out_dtype, args.n, rows, result_stride(args.n, args.out_dtype), shape);
  const float one = 1.0F;
  const float zero = 0.0F;
  check_lt(api_.Matmul(handle_, plan.operation.get(), &one, args.weights, plan.weights.get(), args.x, x.get(),
                       &zero, args.y, y.get(), args.y, y.get(), &plan.algorithm, workspace_.data(),
                       workspace_.size(), stream_),
           "cublasLtMatmul", shape);
}

}  // namespace quire::backend::cuda
