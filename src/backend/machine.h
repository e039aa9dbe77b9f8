#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// What machines can do at most, whether quire has a backend for them or not: the figures behind plans and
// ceilings.
namespace quire::backend {

/// The peak rates of a machine, and what nothing can do at once; 0: unknown.
struct MachineSpeed {
  double bandwidth = 0;  // bytes read from memory per second
  // Operations per second in a matmul, a multiply-add counting as two, by the format of the weights; those of
  // `integer` are all whose products are integers. Dense: without the structured sparsity of NVIDIA's cards.
  double f32 = 0;
  double f16 = 0;
  double bf16 = 0;
  double integer = 0;
  double host_link = 0;  // bytes per second from its memory to the host's, or back
  double launch = 0;     // seconds from the end of one op to the start of the next
};

struct Machine {
  std::string_view name;   // of --machine
  std::string_view title;  // "NVIDIA A10G"
  uint64_t memory = 0;     // bytes
  MachineSpeed speed;
  std::string_view source;
};

/// Known cards, by the figures of their makers.
std::span<const Machine> known_machines();
/// Null if there is none of this name.
const Machine* find_machine(std::string_view name);

}  // namespace quire::backend
