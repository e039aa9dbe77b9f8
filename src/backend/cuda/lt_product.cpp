#include "backend/cuda/lt_product.h"

#include <fmt/format.h>

#include "base/error.h"

namespace quire::backend::cuda {
namespace {

constexpr int kMostOffered = 16;

lt::DataType type_of(DType dtype) {
  if (dtype == DType::kF32) return lt::kRealF32;
  return dtype == DType::kF16 ? lt::kRealF16 : lt::kRealBF16;
}

}  // namespace

LtHandle::LtHandle(const lt::Api& api, Stream stream, size_t workspace_bytes)
    : api_(api), stream_(stream), workspace_(workspace_bytes, "cuBLASLt's workspace") {
  if (const lt::Status status = api_.Create(&handle_); status != lt::kSuccess) {
    throw Error(fmt::format("CUDA: cublasLtCreate: {}", api_.GetStatusString(status)));
  }
}

LtHandle::~LtHandle() { api_.Destroy(handle_); }

/// cuBLASLt's matrices are column-major, so a row-major y [rows, n] is its [n, rows], and y = x W^T is
/// computed as y^T = W x^T: its A is W, which it sees as [k, n] and transposes, and its B is x, seen as
/// [k, rows].
LtProduct::LtProduct(LtHandle& lt, const GemmShape& shape, const void* bias)
    : lt_(lt),
      shape_(shape),
      operation_(nullptr, lt.api().MatmulDescDestroy),
      weights_(layout(shape.dtype, shape.k, shape.n, shape.k)) {
  lt::Operation* operation = nullptr;
  check(lt_.api().MatmulDescCreate(&operation, lt::kComputeF32, lt::kRealF32), "cublasLtMatmulDescCreate");
  operation_.reset(operation);
  const auto set = [&](lt::OperationAttribute attribute, const auto& value) {
    check(lt_.api().MatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  };
  set(lt::kTransA, lt::kTransposed);
  set(lt::kTransB, lt::kAsItIs);
  if (!shape.bias) return;
  set(lt::kEpilogue, lt::kAddBias);
  set(lt::kBiasDataType, type_of(shape.dtype));
  set(lt::kBiasPointer, bias);
}

void LtProduct::check(lt::Status status, const char* call) const {
  if (status == lt::kSuccess) return;
  throw Error(fmt::format("CUDA: {}: {} ({} weights [{}, {}])", call, lt_.api().GetStatusString(status),
                          dtype_name(shape_.dtype), shape_.n, shape_.k));
}

LtProduct::Layout LtProduct::layout(DType dtype, uint32_t rows, uint32_t columns, uint32_t stride) const {
  lt::Layout* made = nullptr;
  check(lt_.api().MatrixLayoutCreate(&made, type_of(dtype), rows, columns, stride),
        "cublasLtMatrixLayoutCreate");
  return {made, lt_.api().MatrixLayoutDestroy};
}

LtProduct::Rows LtProduct::rows_layouts(uint32_t rows) const {
  return {layout(shape_.dtype, shape_.k, rows, shape_.k),
          layout(shape_.out_dtype, shape_.n, rows, result_stride(shape_.n, shape_.out_dtype))};
}

std::vector<lt::Algorithm> LtProduct::offered(uint32_t rows, bool may_split) const {
  const lt::Api& api = lt_.api();
  lt::Preference* made = nullptr;
  check(api.MatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<lt::Preference, lt::Status (*)(lt::Preference*)> preference(
      made, api.MatmulPreferenceDestroy);
  const auto set = [&](lt::PreferenceAttribute attribute, const auto& value) {
    check(api.MatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(lt::kMaxWorkspace, uint64_t{lt_.workspace().size()});
  if (!may_split) set(lt::kReductionSchemes, uint32_t{0});
  const Rows layouts = rows_layouts(rows);
  lt::Heuristic found[kMostOffered];
  int count = 0;
  check(api.MatmulAlgoGetHeuristic(lt_.get(), operation_.get(), weights_.get(), layouts.x.get(),
                                   layouts.y.get(), layouts.y.get(), made, kMostOffered, found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
  std::vector<lt::Algorithm> out;
  for (int i = 0; i < count; ++i) {
    if (found[i].status != lt::kSuccess) continue;
    int32_t parts = 0;
    size_t written = 0;
    if (!may_split) {
      check(
          api.MatmulAlgoConfigGetAttribute(&found[i].algorithm, lt::kSplitK, &parts, sizeof(parts), &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
    }
    if (parts <= 1) out.push_back(found[i].algorithm);
  }
  return out;
}

bool LtProduct::add(const lt::Algorithm& algorithm, const Operands& of) {
  const lt::Api& api = lt_.api();
  if (shape_.bias) {
    check(api.MatmulDescSetAttribute(operation_.get(), lt::kBiasPointer, &of.bias, sizeof(of.bias)),
          "cublasLtMatmulDescSetAttribute");
  }
  auto known = layouts_.find(of.rows);
  if (known == layouts_.end()) known = layouts_.emplace(of.rows, rows_layouts(of.rows)).first;
  const Rows& layouts = known->second;
  const float one = 1.0F;
  const float zero = 0.0F;
  status_ = api.Matmul(lt_.get(), operation_.get(), &one, of.weights, weights_.get(), of.x, layouts.x.get(),
                       &zero, of.y, layouts.y.get(), of.y, layouts.y.get(), &algorithm,
                       lt_.workspace().data(), lt_.workspace().size(), lt_.stream());
  if (status_ == lt::kNotSupported || status_ == lt::kInvalidValue) return false;
  check(status_, "cublasLtMatmul");
  return true;
}

std::string LtProduct::why_not() const { return lt_.api().GetStatusString(status_); }

}  // namespace quire::backend::cuda
