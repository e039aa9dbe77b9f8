#include "tests/device_on_host/fake_cublaslt.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tensor/dtype.h"
#include "tests/device_on_host/device.h"

namespace quire::backend::cuda::lt {

// cuBLASLt's handles point to these.
struct Handle {};
struct Layout {
  DataType type;
  uint64_t rows;
  uint64_t columns;
  int64_t ld;
};
struct Operation {
  Transposition trans_a = kAsItIs;
  Transposition trans_b = kAsItIs;
  Epilogue epilogue = kPlain;
  const void* bias = nullptr;
  DataType bias_type = kRealF32;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
};

}  // namespace quire::backend::cuda::lt

namespace quire::test::fibers {
namespace {

using namespace backend::cuda::lt;

constexpr uint64_t kAlignment = 16;
constexpr uint64_t kOneSum = 0x51;  // the mark of the algorithm that does not split K
constexpr uint64_t kParts = 0x52;
constexpr uint64_t kHidden = 0x53;  // divides K among as many workers as the rows make, and does not say so

constexpr size_t kPartsWorkspace = 1 << 20;

std::string refusal;
uint64_t made = 0;
uint64_t in_parts = 0;
Offers offers = Offers::kFew;

Status refuse(Status status, std::string why) {
  refusal = std::move(why);
  return status;
}

size_t bytes_of(DataType type) { return type == kRealF32 ? 4 : 2; }

float read(const void* from, DataType type, size_t index) {
  if (type == kRealF32) return static_cast<const float*>(from)[index];
  const uint16_t bits = static_cast<const uint16_t*>(from)[index];
  return type == kRealF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

void write(void* to, DataType type, size_t index, float value) {
  if (type == kRealF32) {
    static_cast<float*>(to)[index] = value;
  } else {
    static_cast<uint16_t*>(to)[index] = type == kRealF16 ? f32_to_f16(value) : f32_to_bf16(value);
  }
}

Status create(Handle** handle) {
  *handle = new Handle();
  return kSuccess;
}
Status destroy(Handle* handle) {
  delete handle;
  return kSuccess;
}
size_t version() { return 130100; }
const char* status_string(Status status) { return status == kSuccess ? "success" : refusal.c_str(); }

Status create_layout(Layout** layout, DataType type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (type != kRealF32 && type != kRealF16 && type != kRealBF16) {
    return refuse(kNotSupported, fmt::format("matrices of type {}", static_cast<int>(type)));
  }
  if (rows == 0 || columns == 0 || ld < static_cast<int64_t>(rows)) {
    return refuse(kInvalidValue,
                  fmt::format("a matrix of {} rows and {} columns, {} apart", rows, columns, ld));
  }
  *layout = new Layout{type, rows, columns, ld};
  return kSuccess;
}
Status destroy_layout(Layout* layout) {
  delete layout;
  return kSuccess;
}

Status create_operation(Operation** operation, ComputeType compute, DataType scale) {
  if (compute != kComputeF32 || scale != kRealF32) return refuse(kNotSupported, "sums that are not f32");
  *operation = new Operation();
  return kSuccess;
}
Status destroy_operation(Operation* operation) {
  delete operation;
  return kSuccess;
}

template <class Value>
Status set(Value& to, const void* value, size_t bytes) {
  if (bytes != sizeof(to)) {
    return refuse(kInvalidValue, fmt::format("an attribute of {} bytes, not {}", bytes, sizeof(to)));
  }
  std::memcpy(&to, value, bytes);
  return kSuccess;
}

Status set_operation(Operation* operation, OperationAttribute attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case kTransA:
      return set(operation->trans_a, value, bytes);
    case kTransB:
      return set(operation->trans_b, value, bytes);
    case kEpilogue:
      return set(operation->epilogue, value, bytes);
    case kBiasPointer:
      return set(operation->bias, value, bytes);
    case kBiasDataType:
      return set(operation->bias_type, value, bytes);
  }
  return refuse(kNotSupported, fmt::format("attribute {} of an operation", static_cast<int>(attribute)));
}

Status create_preference(Preference** preference) {
  *preference = new Preference();
  return kSuccess;
}
Status destroy_preference(Preference* preference) {
  delete preference;
  return kSuccess;
}
Status set_preference(Preference* preference, PreferenceAttribute attribute, const void* value,
                      size_t bytes) {
  switch (attribute) {
    case kMaxWorkspace:
      return set(preference->workspace, value, bytes);
    case kReductionSchemes:
      return set(preference->reductions, value, bytes);
  }
  return refuse(kNotSupported, fmt::format("attribute {} of a preference", static_cast<int>(attribute)));
}

/// That A transposed, B as it is, and D fit together, and begin columns at multiples of 16 bytes.
Status check_shapes(const Operation& operation, const Layout& a, const Layout& b, const Layout& c,
                    const Layout& d) {
  if (operation.trans_a != kTransposed || operation.trans_b != kAsItIs) {
    return refuse(kNotSupported, "other transpositions than of A alone");
  }
  if (a.rows != b.rows || a.columns != d.rows || b.columns != d.columns || c.rows != d.rows ||
      c.columns != d.columns || c.ld != d.ld || c.type != d.type) {
    return refuse(kInvalidValue, fmt::format("[{}, {}]^T times [{}, {}] into [{}, {}]", a.rows, a.columns,
                                             b.rows, b.columns, d.rows, d.columns));
  }
  if (a.type != b.type || (d.type != a.type && d.type != kRealF32)) {
    return refuse(kNotSupported, "this combination of types");
  }
  for (const Layout* one : {&a, &b, &d}) {
    if (static_cast<size_t>(one->ld) * bytes_of(one->type) % kAlignment != 0) {
      return refuse(kNotSupported,
                    fmt::format("columns {} elements apart, no multiple of 16 bytes", one->ld));
    }
  }
  if (operation.epilogue != kPlain && operation.epilogue != kAddBias) {
    return refuse(kNotSupported, fmt::format("epilogue {}", static_cast<uint32_t>(operation.epilogue)));
  }
  if (operation.epilogue == kAddBias && operation.bias_type != a.type) {
    return refuse(kNotSupported, "a bias of another type than A and B");
  }
  return kSuccess;
}

Status heuristic(Handle* /*handle*/, Operation* operation, Layout* a, Layout* b, Layout* c, Layout* d,
                 Preference* preference, int wanted, Heuristic* found, int* num_found) {
  *num_found = 0;
  if (const Status status = check_shapes(*operation, *a, *b, *c, *d); status != kSuccess) return status;
  // A library may offer what was not asked for first; only its status says that it will not do.
  const Heuristic all[] = {
      {.algorithm = {{kParts, 2}}, .workspace = 0, .status = kNotSupported, .waves = 1, .reserved = {}},
      {.algorithm = {{kParts, 2}},
       .workspace = kPartsWorkspace,
       .status = kSuccess,
       .waves = 1,
       .reserved = {}},
      {.algorithm = {{kOneSum, 1}}, .workspace = 0, .status = kSuccess, .waves = 1, .reserved = {}}};
  const Heuristic more[] = {
      {.algorithm = {{kHidden, 1}}, .workspace = 0, .status = kSuccess, .waves = 1, .reserved = {}},
      {.algorithm = {{kOneSum, 1, d->columns}},
       .workspace = 0,
       .status = kSuccess,
       .waves = 1,
       .reserved = {}}};
  const auto offer = [&](const Heuristic& one) {
    if (*num_found == wanted || one.workspace > preference->workspace) return;
    found[(*num_found)++] = one;
  };
  std::ranges::for_each(all, offer);
  if (offers == Offers::kMany || offers == Offers::kOneSumForFewRows) std::ranges::for_each(more, offer);
  return kSuccess;
}

Status algorithm_attribute(const Algorithm* algorithm, AlgorithmAttribute attribute, void* value,
                           size_t bytes, size_t* written) {
  if (attribute != kSplitK) {
    return refuse(kNotSupported, fmt::format("attribute {} of an algorithm", static_cast<int>(attribute)));
  }
  const auto parts = static_cast<int32_t>(algorithm->data[1]);
  if (bytes != sizeof(parts)) return refuse(kInvalidValue, "an attribute of another size");
  std::memcpy(value, &parts, sizeof(parts));
  *written = sizeof(parts);
  return kSuccess;
}

/// A matrix as f32, the element of row r and column c at [r * columns + c] if `by_rows`, else at [c * rows +
/// r].
std::vector<float> widened(const void* from, const Layout& layout, bool by_rows) {
  constexpr uint64_t kTogether = 16;  // columns, so that memory is walked in stretches either way
  std::vector<float> out(layout.rows * layout.columns);
  for (uint64_t first = 0; first < layout.columns; first += kTogether) {
    const uint64_t end = std::min(first + kTogether, layout.columns);
    for (uint64_t row = 0; row < layout.rows; ++row) {
      for (uint64_t column = first; column < end; ++column) {
        out[by_rows ? row * layout.columns + column : column * layout.rows + row] =
            read(from, layout.type, column * static_cast<uint64_t>(layout.ld) + row);
      }
    }
  }
  return out;
}

bool is_late() { return offers == Offers::kLate || offers == Offers::kLateBackwards; }

/// One column of A^T B: `a` has A by rows, each `height` long. Element by element sums go along K, in so many
/// parts.
void multiply(const std::vector<float>& a, const float* b, uint64_t length, uint64_t parts,
              std::vector<float>& out) {
  const size_t height = out.size();
  const bool backwards = offers == Offers::kBackwards || offers == Offers::kLateBackwards;
  std::fill(out.begin(), out.end(), 0.0F);
  std::vector<float> sums(height);
  for (uint64_t part = 0; part < parts; ++part) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (uint64_t k = part * length / parts; k < (part + 1) * length / parts; ++k) {
      const uint64_t next = backwards ? length - 1 - k : k;
      const float* row = a.data() + next * height;
      for (size_t i = 0; i < height; ++i) sums[i] += row[i] * b[next];
    }
    for (size_t i = 0; i < height; ++i) out[i] += sums[i];
  }
}

size_t extent_of(const Layout& layout) {
  return ((layout.columns - 1) * static_cast<size_t>(layout.ld) + layout.rows) * bytes_of(layout.type);
}

bool overlap(const void* a, const Layout& a_layout, const void* b, const Layout& b_layout) {
  const auto first = reinterpret_cast<uintptr_t>(a);
  const auto second = reinterpret_cast<uintptr_t>(b);
  return first < second + extent_of(b_layout) && second < first + extent_of(a_layout);
}

Status check_memory(const char* what, const void* at, const Layout& layout, bool is_read) {
  if (reinterpret_cast<uintptr_t>(at) % kAlignment != 0) {
    return refuse(kInvalidValue, fmt::format("{} at no multiple of 16 bytes", what));
  }
  const std::string why = Device::current()->why_not(at, extent_of(layout), is_read);
  return why.empty() ? kSuccess : refuse(kInvalidValue, fmt::format("{}: {}", what, why));
}

/// What one call multiplies.
struct Product {
  Operation operation;
  const void* a;
  Layout a_layout;
  const void* b;
  Layout b_layout;
  void* d;
  Layout d_layout;
  uint64_t algorithm;
};

/// `is_read`: whether what it reads must have been written.
Status check_memory(const Product& of, bool is_read) {
  Status status = check_memory("A", of.a, of.a_layout, is_read);
  if (status == kSuccess) status = check_memory("B", of.b, of.b_layout, is_read);
  if (status == kSuccess) status = check_memory("D", of.d, of.d_layout, false);
  if (overlap(of.a, of.a_layout, of.d, of.d_layout) || overlap(of.b, of.b_layout, of.d, of.d_layout)) {
    status = refuse(kInvalidValue, "D lies over A or B");
  }
  if (status != kSuccess || of.operation.epilogue != kAddBias) return status;
  const Layout vector{of.operation.bias_type, of.d_layout.rows, 1, static_cast<int64_t>(of.d_layout.rows)};
  return check_memory("the bias", of.operation.bias, vector, is_read);
}

void compute(const Product& of) {
  const uint64_t parts = of.algorithm == kOneSum ? 1 : 1 + of.b_layout.columns / 64;
  const std::vector<float> rows_of_a = widened(of.a, of.a_layout, true);
  const std::vector<float> columns_of_b = widened(of.b, of.b_layout, false);
  const Layout& layout = of.d_layout;
  std::vector<float> result(layout.rows);
  for (uint64_t column = 0; column < layout.columns; ++column) {
    const uint64_t first = column * static_cast<uint64_t>(layout.ld);
    multiply(rows_of_a, columns_of_b.data() + column * of.a_layout.rows, of.a_layout.rows, parts, result);
    for (uint64_t row = 0; row < layout.rows; ++row) {
      float value = result[row];
      if (of.operation.epilogue == kAddBias) {
        value += read(of.operation.bias, of.operation.bias_type, row);
      }
      write(of.d, layout.type, first + row, value);
    }
    Device::current()->mark_written(static_cast<std::byte*>(of.d) + first * bytes_of(layout.type),
                                    layout.rows * bytes_of(layout.type));
  }
}

Status matmul(Handle* /*handle*/, Operation* operation, const void* alpha, const void* a, Layout* a_layout,
              const void* b, Layout* b_layout, const void* beta, const void* c, Layout* c_layout, void* d,
              Layout* d_layout, const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
              backend::cuda::Stream stream) {
  const float factors[] = {*static_cast<const float*>(alpha), *static_cast<const float*>(beta)};
  if (factors[0] != 1.0F || factors[1] != 0.0F) return refuse(kNotSupported, "factors other than 1 and 0");
  if (c != d) return refuse(kNotSupported, "a C that is not D");
  if (algorithm == nullptr || algorithm->data[0] < kOneSum || algorithm->data[0] > kHidden) {
    return refuse(kInvalidValue, "an algorithm that was not offered");
  }
  if (offers == Offers::kOneSumForFewRows && algorithm->data[0] == kOneSum && d_layout->columns > 64) {
    return refuse(kNotSupported, "so many rows");
  }
  const bool split = algorithm->data[0] == kParts;
  if (split && (workspace == nullptr || workspace_bytes < kPartsWorkspace)) {
    return refuse(kInvalidValue, "too little workspace for an algorithm that splits K");
  }
  ++made;
  in_parts += algorithm->data[0] != kOneSum ? 1 : 0;
  Status status = check_shapes(*operation, *a_layout, *b_layout, *c_layout, *d_layout);
  const Product product{*operation, a, *a_layout, b, *b_layout, d, *d_layout, algorithm->data[0]};
  // On the default stream all that is read is there by now.
  if (status == kSuccess) status = check_memory(product, stream == nullptr);
  if (status != kSuccess) return status;
  Device::current()->streams().add(stream, [product] {
    if (check_memory(product, true) != kSuccess) throw std::runtime_error("cuBLASLt: " + refusal);
    compute(product);
    if (is_late()) std::this_thread::sleep_for(kLateBy);
  });
  return kSuccess;
}

}  // namespace

const Api& fake_cublaslt() {
  static constexpr Api kApi = {create,
                               destroy,
                               version,
                               status_string,
                               create_layout,
                               destroy_layout,
                               create_operation,
                               destroy_operation,
                               set_operation,
                               create_preference,
                               destroy_preference,
                               set_preference,
                               heuristic,
                               algorithm_attribute,
                               matmul};
  return kApi;
}

void offer(Offers which) { offers = which; }
uint64_t products() { return made; }
uint64_t products_in_parts() { return in_parts; }

const char* why_cublaslt_refused() { return refusal.c_str(); }

}  // namespace quire::test::fibers
