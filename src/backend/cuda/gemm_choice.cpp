#include "backend/cuda/gemm_choice.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "backend/cuda/few_rows.h"
#include "base/error.h"
#include "base/rng.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kWeightRows = 1024;  // that differ
constexpr int kTimed = 6;               // products
/// What takes so many times as long as the fastest once is not measured further, and what takes so many times
/// as long for some number of rows is not tried for more.
constexpr double kNotTheFastest = 1.5;
constexpr double kHopeless = 4.0;

bool same(const lt::Algorithm& a, const lt::Algorithm& b) {
  return std::memcmp(&a, &b, sizeof(lt::Algorithm)) == 0;
}

void add_new(std::vector<lt::Algorithm>& to, std::span<const lt::Algorithm> algorithms) {
  for (const lt::Algorithm& one : algorithms) {
    if (std::ranges::none_of(to, [&](const lt::Algorithm& known) { return same(known, one); })) {
      to.push_back(one);
    }
  }
}

/// kGemmRows, twice as many and so on, up to most_rows.
std::vector<uint32_t> ranges_up_to(uint32_t most_rows) {
  std::vector<uint32_t> out;
  for (uint32_t rows = kGemmRows; rows < most_rows; rows *= 2) out.push_back(rows);
  out.push_back(most_rows);
  return out;
}

/// Numbers of rows above `below`, up to `most`, for which an algorithm's bits are looked at.
std::vector<uint32_t> rows_to_try(uint32_t below, uint32_t most) {
  if (most <= kAllGroups * kGemmRows) {
    std::vector<uint32_t> out;
    for (uint32_t rows = below + kGemmRows; rows <= most; rows += kGemmRows) out.push_back(rows);
    return out;
  }
  const uint32_t groups = (most - below) / kGemmRows;
  return {below + kGemmRows, below + groups / 2 * kGemmRows + kGemmRows, most};
}

/// `rows` rows of numbers in (-1, 1). Each has every number twice, as far apart as about half its length:
/// with the same sign in weights, and with the other in x.
std::vector<std::byte> cancelling_rows(uint32_t rows, uint32_t k, DType dtype, float sign_of_second) {
  constexpr uint32_t kShift = 37;  // so that the halves do not meet in step
  std::vector<std::byte> out(size_t{rows} * k * dtype_bytes(dtype));
  SplitMix64 rng(rows);
  const auto put = [&](size_t at, float value) {
    if (dtype == DType::kF32) {
      std::memcpy(out.data() + at * sizeof(value), &value, sizeof(value));
      return;
    }
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(out.data() + at * sizeof(half), &half, sizeof(half));
  };
  const uint32_t pairs = k / 2;
  for (size_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < pairs; ++i) {
      const auto value = static_cast<float>(unit_interval(rng.next()) * 2.0 - 1.0);
      put(row * k + i, value);
      put(row * k + pairs + (i + kShift) % pairs, sign_of_second * value);
    }
  }
  return out;
}

/// Memory of the device with these bytes again and again.
DeviceBuffer repeated(const std::vector<std::byte>& bytes, size_t total, Stream stream) {
  DeviceBuffer out(total, "the trial of matrix products");
  for (size_t done = 0; done < total; done += bytes.size()) {
    copy_to_device(out.data() + done, bytes.data(), std::min(bytes.size(), total - done), stream);
  }
  synchronize(stream);
  return out;
}

[[noreturn]] void refuse(const GemmShape& shape, uint32_t rows) {
  throw Error(
      fmt::format("CUDA: of cuBLASLt's algorithms for {} weights [{}, {}] none gives {} rows the bits "
                  "that it gives {} (--fast-gemm does without)",
                  dtype_name(shape.dtype), shape.n, shape.k, rows, kGemmRows));
}

class Trial {
 public:
  Trial(LtHandle& lt, LtProduct& product, std::span<const void* const> weights, const void* bias,
        uint32_t most_rows)
      : product_(product), stream_(lt.stream()), weights_(weights), bias_(bias) {
    const GemmShape& shape = product.shape();
    const size_t bytes_of_row = size_t{shape.k} * dtype_bytes(shape.dtype);
    row_bytes_ = result_stride(shape.n, shape.out_dtype) * dtype_bytes(shape.out_dtype);
    x_ = repeated(cancelling_rows(kGemmRows, shape.k, shape.dtype, -1.0F), most_rows * bytes_of_row, stream_);
    cancelling_ = repeated(cancelling_rows(std::min(kWeightRows, shape.n), shape.k, shape.dtype, 1.0F),
                           shape.n * bytes_of_row, stream_);
    y_ = DeviceBuffer(most_rows * row_bytes_, "the trial of matrix products");
    clear(y_.data(), y_.size(), stream_);  // what lies between rows is compared too
    if (!shape.bias) return;
    no_bias_ = DeviceBuffer(shape.n * dtype_bytes(shape.dtype), "the trial of matrix products");
    clear(no_bias_.data(), no_bias_.size(), stream_);
  }

  /// The results of the first and of the last group of rows; nothing if the algorithm does not do.
  std::optional<std::vector<std::byte>> bits(const lt::Algorithm& algorithm, uint32_t rows) {
    // Beside a bias the rounding would not show.
    if (!add(algorithm, cancelling_.data(), no_bias_.data(), rows)) return std::nullopt;
    const size_t group = kGemmRows * row_bytes_;
    std::vector<std::byte> out(2 * group);
    copy_to_host(out.data(), y_.data(), group, stream_);
    copy_to_host(out.data() + group, y_.data() + rows * row_bytes_ - group, group, stream_);
    synchronize(stream_);
    return out;
  }

  /// Whether few_rows() gives each number of rows up to so many the bits of the first of them.
  bool few_have_bits(uint32_t most, std::span<const std::byte> expected) {
    for (uint32_t rows = 1; rows <= most; ++rows) {
      clear(y_.data(), rows * row_bytes_, stream_);
      add_few(cancelling_.data(), no_bias_.data(), rows);
      std::vector<std::byte> out(rows * row_bytes_);
      copy_to_host(out.data(), y_.data(), out.size(), stream_);
      synchronize(stream_);
      if (!std::ranges::equal(out, expected.first(out.size()))) return false;
    }
    return true;
  }
  /// The most rows that few_rows() multiplies in less time than `other`; 0: none.
  uint32_t most_few(Nanos other) {
    for (const uint32_t rows : {kFewRows, kFewRows / 2, 1U}) {
      add_few(next_weights(), bias_, rows);  // what happens once only
      if (time_of(kTimed, [&] { add_few(next_weights(), bias_, rows); }) < other) return rows;
    }
    return 0;
  }

  struct Timed {
    lt::Algorithm algorithm;
    Nanos time;  // of one product
  };
  /// Those that do, the fastest first.
  std::vector<Timed> by_time(std::span<const lt::Algorithm> algorithms, uint32_t rows) {
    std::vector<Timed> out;
    Nanos best = 0;
    for (const lt::Algorithm& one : algorithms) {
      if (!add(one, next_weights(), bias_, rows)) continue;  // what happens once only
      const auto product = [&] { add(one, next_weights(), bias_, rows); };
      Nanos time = time_of(1, product);
      if (best == 0 || static_cast<double>(time) < kNotTheFastest * static_cast<double>(best)) {
        time = time_of(kTimed, product);
      }
      best = best == 0 ? time : std::min(best, time);
      out.push_back({one, time});
    }
    std::ranges::stable_sort(out, {}, &Timed::time);
    return out;
  }

 private:
  bool add(const lt::Algorithm& algorithm, const void* weights, const void* bias, uint32_t rows) {
    return product_.add(algorithm,
                        {.x = x_.data(), .weights = weights, .bias = bias, .y = y_.data(), .rows = rows});
  }
  void add_few(const void* weights, const void* bias, uint32_t rows) {
    const GemmShape& shape = product_.shape();
    check(few_rows({.dtype = shape.dtype,
                    .out_dtype = shape.out_dtype,
                    .x = x_.data(),
                    .weights = weights,
                    .bias = bias,
                    .y = y_.data(),
                    .rows = rows,
                    .n = shape.n,
                    .k = shape.k},
                   stream_),
          "a product of few rows");
  }
  const void* next_weights() {
    next_ = (next_ + 1) % weights_.size();
    return weights_[next_];
  }
  template <class Product>
  Nanos time_of(int products, const Product& product) {
    begin_.record(stream_);
    for (int i = 0; i < products; ++i) product();
    end_.record(stream_);
    end_.wait();
    return end_.since(begin_) / products;
  }

  LtProduct& product_;
  Stream stream_;
  std::span<const void* const> weights_;
  const void* bias_;
  size_t row_bytes_ = 0;
  DeviceBuffer x_;
  DeviceBuffer cancelling_;  // weights
  DeviceBuffer no_bias_;
  DeviceBuffer y_;
  Event begin_;
  Event end_;
  size_t next_ = 0;
};

}  // namespace

lt::Algorithm first_for_all_rows(const LtProduct& product) {
  const std::vector<lt::Algorithm> offered = product.offered(kGemmRows, false);
  if (!offered.empty()) return offered.front();
  const GemmShape& shape = product.shape();
  throw Error(fmt::format("CUDA: cuBLASLt has no algorithm for {} weights [{}, {}] that does not split K",
                          dtype_name(shape.dtype), shape.n, shape.k));
}

std::vector<RowsChoice> choose_for_all_rows(LtHandle& lt, LtProduct& product,
                                            std::span<const void* const> weights, const void* bias,
                                            uint32_t most_rows) {
  const lt::Algorithm first = first_for_all_rows(product);
  const std::vector<uint32_t> ranges = ranges_up_to(most_rows);
  std::vector<lt::Algorithm> all = {first};
  for (const uint32_t rows : ranges) add_new(all, product.offered(rows, false));
  const GemmShape& shape = product.shape();
  const bool tries_few = few_rows_multiplies(shape.dtype, shape.out_dtype, shape.n, shape.k);
  if (all.size() == 1 && !tries_few) return {{most_rows, first}};
  Trial trial(lt, product, weights, bias, most_rows);
  const std::optional<std::vector<std::byte>> expected = trial.bits(first, kGemmRows);
  std::vector<RowsChoice> out;
  for (const uint32_t rows : ranges) {
    const std::vector<uint32_t> tried = rows_to_try(rows == ranges.front() ? 0 : out.back().most_rows, rows);
    const auto has_bits = [&](const Trial::Timed& one) {
      return std::ranges::all_of(
          tried, [&](uint32_t some) { return expected && trial.bits(one.algorithm, some) == expected; });
    };
    const std::vector<Trial::Timed> timed = trial.by_time(all, rows);
    const auto chosen = std::ranges::find_if(timed, has_bits);
    if (chosen == timed.end()) refuse(shape, rows);
    if (tries_few && out.empty()) {
      const uint32_t few = trial.most_few(chosen->time);
      if (few != 0 && trial.few_have_bits(few, *expected)) out.push_back({few, std::nullopt});
    }
    out.push_back({rows, chosen->algorithm});
    all.clear();
    for (const Trial::Timed& one : timed) {
      if (static_cast<double>(one.time) < kHopeless * static_cast<double>(chosen->time)) {
        all.push_back(one.algorithm);
      }
    }
  }
  return out;
}

uint32_t most_few_rows(LtHandle& lt, LtProduct& product, std::span<const void* const> weights,
                       const void* bias) {
  const GemmShape& shape = product.shape();
  if (!few_rows_multiplies(shape.dtype, shape.out_dtype, shape.n, shape.k)) return 0;
  const std::vector<lt::Algorithm> offered = product.offered(1, true);
  if (offered.empty()) return 0;
  Trial trial(lt, product, weights, bias, kGemmRows);
  const std::vector<Trial::Timed> timed = trial.by_time(std::span(offered).first(1), 1);
  return timed.empty() ? 0 : trial.most_few(timed.front().time);
}

size_t bytes_of_choice(const GemmShape& shape, uint32_t most_rows) {
  const size_t element = dtype_bytes(shape.dtype);
  const size_t row = result_stride(shape.n, shape.out_dtype) * dtype_bytes(shape.out_dtype);
  return (size_t{most_rows} + shape.n) * shape.k * element + shape.n * element + most_rows * row;
}

}  // namespace quire::backend::cuda
