#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "backend/cuda/runtime.h"

// Times of work on a real device, as rows of a table in Markdown. bench.cpp is the program.
namespace quire::test::gpu {

/// What a measurement is compared with.
struct Ceilings {
  double copied = 0;  // bytes per second that a copy on the device reads and writes, as measured
  double bf16 = 0;    // operations per second in products of bf16: the data sheet's, or as measured
};

/// What some work cannot do without: bytes that it reads and writes, and operations of the matrix products in
/// it, a multiply-add counting as two.
struct Needs {
  double bytes = 0;
  double operations = 0;
};

/// The median of the seconds that one call takes, back to back on the default stream: of at least 5 samples
/// of at least 2 ms each. `run` only adds work to the stream.
double seconds_of(const std::function<void()>& run);

/// The same by the host's clock; `run` waits for the device itself.
double seconds_of_waiting(const std::function<void()>& run);

void print_head();
/// One row: the time, and the share of the ceilings that the needs come to.
void print_row(const std::string& what, double seconds, const Needs& needs, const Ceilings& ceilings);

/// Memory of the device that holds numbers in (-1, 1) of bf16, always the same.
backend::cuda::DeviceBuffer random_bf16(size_t count, const std::string& what);

/// Measures and prints the ceilings; products with cuBLASLt.
Ceilings measure_ceilings();

// Each prints its rows.
void measure_attention(const Ceilings& ceilings);
void measure_small_kernels(const Ceilings& ceilings);
void measure_gemms(const Ceilings& ceilings);
/// Whole steps of a model of Llama-3.2-1B's shape, whose weights are random.
void measure_steps(const Ceilings& ceilings);

}  // namespace quire::test::gpu
