// bench ops: each kernel by itself, at the shapes of Llama-3.2-1B, compared with the limits of the machine.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/machine_limits.h"
#include "cli/commands.h"
#include "cli/idle_flags.h"
#include "cli/machine.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr size_t kWide = 8192;
constexpr size_t kNarrow = 2048;
constexpr FileKind kFigures{"result of quire bench ops", "{\"machine\":"};
constexpr uint32_t kHeads = 32;
constexpr uint32_t kKvHeads = 8;
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kBlockSize = 16;

struct Options {
  std::string filter;
  std::string isa = "all";
  std::string json_file;
  uint32_t repeats = 5;
  uint32_t threads = 0;
  bool list = false;
};

/// Floats in the same kind of memory as a model's activations, with large pages.
class Floats {
 public:
  explicit Floats(size_t count) : bytes_(count * sizeof(float)) {}
  float* data() { return bytes_.as<float>(); }
  const float* data() const { return bytes_.as<float>(); }
  size_t size() const { return bytes_.size() / sizeof(float); }

 private:
  Buffer bytes_;
};

Floats numbers(size_t count) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values.data()[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
  return values;
}

/// The measured time of a call, and the figures to compare it with.
struct Measured {
  std::vector<double> seconds;  // of one call, for each repeat, ascending
  double flops = 0;             // of one call
  double bytes = 0;
  Peaks peaks;

  double median() const { return seconds[seconds.size() / 2]; }
};

/// Times calls: repeats them for a tenth of a second.
class Timer {
 public:
  Timer(ThreadPool& pool, uint32_t repeats) : pool_(pool), repeats_(repeats) {}

  ThreadPool& pool() { return pool_; }

  /// The peaks are the better of the measurements right before and right after.
  template <class Body>
  Measured measure(kernels::IsaLevel level, WeightFormat format, double flops, double bytes,
                   const Body& body) {
    Measured out{.flops = flops, .bytes = bytes};
    if (flops > 0) out.peaks = probe_peaks(pool_, level, format);
    body();
    uint64_t batch = 1;
    while (batch < kMostCalls && seconds_of(batch, body) < kBatchSeconds) batch *= 2;
    for (uint32_t i = 0; i < repeats_; ++i) {
      uint64_t calls = 0;
      double seconds = 0;
      for (; seconds < kSeconds; calls += batch) seconds += seconds_of(batch, body);
      out.seconds.push_back(seconds / static_cast<double>(calls));
    }
    if (flops > 0) {
      const Peaks after = probe_peaks(pool_, level, format);
      out.peaks = {std::max(out.peaks.flops, after.flops), std::max(out.peaks.bytes, after.bytes)};
    }
    std::sort(out.seconds.begin(), out.seconds.end());
    return out;
  }

 private:
  static constexpr double kSeconds = 0.1;
  static constexpr double kBatchSeconds = 1e-4;  // long enough that reading the clock does not matter
  static constexpr uint64_t kMostCalls = 1'000'000;

  template <class Body>
  static double seconds_of(uint64_t calls, const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < calls; ++i) body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  ThreadPool& pool_;
  uint32_t repeats_;
};

/// Several matrices used in turn, so that the weights come from memory as in a model. Kept between cases of
/// the same kind.
class Matrices {
 public:
  const std::vector<kernels::PackedMatrix>& of(ThreadPool& pool, kernels::IsaLevel level,
                                               WeightFormat format) {
    if (kind_ == std::pair(level, format)) return weights_;
    weights_.clear();
    kind_ = {level, format};
    kernels::KernelContext context{level, pool};
    const Floats values = numbers(kWide * kNarrow);
    TensorView view{DType::kF32, {kWide, kNarrow}, reinterpret_cast<const std::byte*>(values.data())};
    std::vector<std::byte> blocks;
    if (is_ggml(format)) {
      blocks = some_blocks(format);
      view = {DType::kU8, {kWide, static_cast<int64_t>(blocks.size() / kWide)}, blocks.data()};
    }
    for (size_t i = 0; i < kCount; ++i) weights_.emplace_back(context, view, format);
    return weights_;
  }

 private:
  static constexpr size_t kCount = 8;

  /// kWide rows of kNarrow inputs with arbitrary values, without bytes that make a scale infinite.
  static std::vector<std::byte> some_blocks(WeightFormat format) {
    const GgmlBlock block = ggml_block(format);
    std::vector<std::byte> bytes(kWide * kNarrow / block.values * block.bytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7919 % 97);
    return bytes;
  }

  std::optional<std::pair<kernels::IsaLevel, WeightFormat>> kind_;
  std::vector<kernels::PackedMatrix> weights_;
};

Measured time_matmul(Timer& timer, Matrices& matrices, kernels::IsaLevel level, WeightFormat format,
                     size_t m) {
  const std::vector<kernels::PackedMatrix>& weights = matrices.of(timer.pool(), level, format);
  kernels::KernelContext context{level, timer.pool()};
  const Floats x = numbers(m * kNarrow);
  Floats y(m * kWide);
  size_t next = 0;
  return timer.measure(level, format, 2.0 * static_cast<double>(m * kWide * kNarrow),
                       static_cast<double>(weights[0].num_bytes()), [&] {
                         kernels::matmul(context, weights[next++ % weights.size()], x.data(), kNarrow, m,
                                         y.data(), kWide);
                       });
}

/// `sequences` of `length` tokens each, the last `tokens` of them computed.
struct AttentionShape {
  const char* name;
  uint32_t sequences;
  uint32_t length;
  uint32_t tokens;
};
constexpr AttentionShape kAttentionShapes[] = {{"decode/1x4096", 1, 4096, 1},
                                               {"decode/32x512", 32, 512, 1},
                                               {"prefill/1x512", 1, 512, 512},
                                               {"prefill/256of4096", 1, 4096, 256}};

Measured time_attention(Timer& timer, kernels::IsaLevel level, DType dtype, const AttentionShape& shape) {
  kernels::KernelContext context{level, timer.pool()};
  const kernels::KvLayout layout{dtype, kBlockSize, kKvHeads, kHeadDim};
  const uint32_t blocks_each = (shape.length + kBlockSize - 1) / kBlockSize;
  Buffer cache(size_t{shape.sequences} * blocks_each * layout.block_bytes());
  std::vector<BlockId> table(size_t{shape.sequences} * blocks_each);
  std::iota(table.begin(), table.end(), 0);
  const auto batch_of = [&](uint32_t first, uint32_t count) {
    std::vector<kernels::AttentionSeq> batch;
    for (uint32_t i = 0; i < shape.sequences; ++i) {
      batch.push_back({i * count, count, first, {table.data() + size_t{i} * blocks_each, blocks_each}});
    }
    return batch;
  };
  const size_t kv_width = size_t{kKvHeads} * kHeadDim;
  const Floats kv = numbers(size_t{shape.sequences} * shape.length * kv_width);
  kernels::write_kv(context, layout, cache.data(), batch_of(0, shape.length), kv.data(), kv_width, kv.data(),
                    kv_width);

  const size_t width = size_t{kHeads} * kHeadDim;
  const Floats q = numbers(size_t{shape.sequences} * shape.tokens * width);
  Floats out(q.size());
  const std::vector<kernels::AttentionSeq> batch = batch_of(shape.length - shape.tokens, shape.tokens);
  const double keys = (shape.length - shape.tokens + 1 + shape.length) / 2.0 * shape.tokens * shape.sequences;
  const double bytes = static_cast<double>(shape.sequences) * shape.length * 2.0 *
                       static_cast<double>(kv_width * dtype_bytes(dtype));
  return timer.measure(level, WeightFormat::kF32, 4.0 * keys * static_cast<double>(width), bytes, [&] {
    kernels::paged_attention(context, layout, cache.data(), batch, {kHeads, 0.125F, 0}, q.data(), width,
                             out.data(), width);
  });
}

Measured time_rms_norm(Timer& timer, kernels::IsaLevel level, size_t rows) {
  kernels::KernelContext context{level, timer.pool()};
  const Floats x = numbers(rows * kNarrow);
  Floats y(x.size());
  const auto elements = static_cast<double>(rows * kNarrow);
  return timer.measure(level, WeightFormat::kF32, 4.0 * elements, 8.0 * elements, [&] {
    kernels::rms_norm(context, x.data(), kNarrow, x.data(), 1e-5F, y.data(), kNarrow, rows, kNarrow);
  });
}

Measured time_swiglu(Timer& timer, kernels::IsaLevel level, size_t rows) {
  kernels::KernelContext context{level, timer.pool()};
  const Floats gate_up = numbers(rows * 2 * kWide);
  Floats out(rows * kWide);
  const auto elements = static_cast<double>(rows * kWide);
  return timer.measure(level, WeightFormat::kF32, 22.0 * elements, 12.0 * elements,
                       [&] { kernels::swiglu(context, gate_up.data(), out.data(), rows, kWide); });
}

Measured time_empty_loop(Timer& timer) {
  return timer.measure(kernels::IsaLevel::kReference, WeightFormat::kF32, 0, 0, [&] {
    timer.pool().parallel_for(timer.pool().num_threads(), 1, [](size_t, size_t, uint32_t) {});
  });
}

struct Case {
  std::string name;
  std::function<Measured(Timer&)> run;
};

std::vector<Case> cases_of(kernels::IsaLevel level) {
  std::vector<Case> cases;
  const auto matrices = std::make_shared<Matrices>();
  const std::string_view isa = kernels::isa_name(level);
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4,
                                    WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K,
                                    WeightFormat::kQ6_K, WeightFormat::kF16, WeightFormat::kF32}) {
    for (const size_t m : {1, 4, 8, 16, 32, 64, 512}) {
      cases.push_back({fmt::format("matmul/{}/{}/8192x2048/m{}", isa, weight_format_name(format), m),
                       [=](Timer& timer) { return time_matmul(timer, *matrices, level, format, m); }});
    }
  }
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const AttentionShape& shape : kAttentionShapes) {
      cases.push_back({fmt::format("attention/{}/{}/{}", isa, dtype_name(dtype), shape.name),
                       [=](Timer& timer) { return time_attention(timer, level, dtype, shape); }});
    }
  }
  for (const size_t rows : {1, 64}) {
    cases.push_back({fmt::format("rms_norm/{}/{}x2048", isa, rows),
                     [=](Timer& timer) { return time_rms_norm(timer, level, rows); }});
    cases.push_back({fmt::format("swiglu/{}/{}x8192", isa, rows),
                     [=](Timer& timer) { return time_swiglu(timer, level, rows); }});
  }
  return cases;
}

/// The cases that the flags select, in the order in which they run.
std::vector<Case> chosen_cases(const Options& options) {
  std::vector<Case> cases{{"parallel_for", time_empty_loop}};
  std::vector<kernels::IsaLevel> levels;
  if (options.isa != "all") {
    levels = {pick_isa(options.isa)};
  } else {
    // The reference is for reading, not for speed.
    for (const kernels::IsaLevel level : kernels::available_isa_levels()) {
      if (level != kernels::IsaLevel::kReference) levels.push_back(level);
    }
  }
  for (const kernels::IsaLevel level : levels) {
    for (Case& each : cases_of(level)) cases.push_back(std::move(each));
  }
  try {
    const std::regex filter(options.filter);
    std::erase_if(cases, [&](const Case& each) { return !std::regex_search(each.name, filter); });
  } catch (const std::regex_error&) {
    throw Error(fmt::format("--filter: '{}' is no regular expression", options.filter));
  }
  if (cases.empty()) {
    throw Error(fmt::format("--filter: no op is called like '{}'; --list names them all", options.filter));
  }
  return cases;
}

/// A share of a peak in per cent; "-" where none is known.
std::string share(double rate, double peak) {
  return peak > 0 ? fmt::format("{:.1f}", 100 * rate / peak) : "-";
}

void print_row(const std::string& name, const Measured& measured) {
  const double seconds = measured.median();
  if (measured.flops == 0) {
    fmt::print("{:<42} {:>12.2f}\n", name, seconds * 1e6);
    return;
  }
  const double flops = measured.flops / seconds;
  const double bytes = measured.bytes / seconds;
  fmt::print("{:<42} {:>12.2f} {:>10.2f} {:>8} {:>8.2f} {:>12.1f}\n", name, seconds * 1e6, flops / 1e9,
             share(flops, measured.peaks.flops), bytes / 1e9, 100 * bytes / measured.peaks.bytes);
}

json::object to_json(const std::string& name, const Measured& measured) {
  const double seconds = measured.median();
  json::object row{{"name", name}, {"seconds", seconds}, {"repeats", json::value_from(measured.seconds)}};
  if (measured.flops == 0) return row;
  row["flops_per_second"] = measured.flops / seconds;
  row["bytes_per_second"] = measured.bytes / seconds;
  row["peak_flops_per_second"] =
      measured.peaks.flops > 0 ? json::value(measured.peaks.flops) : json::value(nullptr);
  row["peak_bytes_per_second"] = measured.peaks.bytes;
  return row;
}

int bench_ops(const Options& options) {
  const std::vector<Case> cases = chosen_cases(options);
  if (options.list) {
    for (const Case& each : cases) fmt::print("{}\n", each.name);
    return 0;
  }
  check_output_file(options.json_file, kFigures);
  ThreadPool pool(options.threads > 0 ? options.threads : usable_cpus().threads);
  Timer timer(pool, options.repeats);
  const std::string machine = machine_name();
  fmt::print("{}; {} threads, medians of {}\n", machine, pool.num_threads(), options.repeats);
  fmt::print("{}\n", paint(stdout,
                           fmt::format("{:<42} {:>12} {:>10} {:>8} {:>8} {:>12}", "op", "microseconds",
                                       "GFLOP/s", "% peak", "GB/s", "% bandwidth"),
                           fmt::emphasis::bold));
  std::fflush(stdout);
  json::array rows;
  Progress progress("ops", cases.size());
  for (const Case& each : cases) {
    const Measured measured = each.run(timer);
    progress.hide();
    print_row(each.name, measured);
    std::fflush(stdout);
    progress.advance();
    rows.push_back(to_json(each.name, measured));
  }
  if (!options.json_file.empty()) {
    const json::object figures{{"machine", machine},
                               {"version", version()},
                               {"threads", pool.num_threads()},
                               {"ops", std::move(rows)}};
    write_output_file(options.json_file, kFigures, json::serialize(figures) + "\n");
  }
  return 0;
}

}  // namespace

void add_bench_ops(CLI::App& bench, Command& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "ops", "Each kernel by itself, at the shapes of Llama-3.2-1B, beside what the machine can do");
  command->footer(
      "\nRight before and after each op it measures what the machine can do: \"% peak\" is of the best\n"
      "multiply-add instruction of the level, \"% bandwidth\" of reading memory (an op whose data\n"
      "stay in the cache goes beyond it). Try\n"
      "  quire bench ops --filter 'matmul/.*/int8/' --isa auto");
  command
      ->add_option("--filter", options->filter, "Only the ops in whose name this regular expression is found")
      ->type_name("REGEX");
  command
      ->add_option("--isa", options->isa,
                   "all that this machine has, auto (the best), or one of reference, avx2, avx512, "
                   "avx512-vnni, avx512-bf16, amx")
      ->capture_default_str()
      ->type_name("LEVEL");
  command->add_option("--repeats", options->repeats, "Measurements of each; the median is shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  command
      ->add_option("--threads", options->threads,
                   "Threads that compute; 0: one for each CPU that this process may use")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command->add_option("--json", options->json_file, "Write the figures here too, with every repeat")
      ->type_name("FILE");
  command->add_flag("--list", options->list, "Name the ops and measure none");
  command->callback([options, command, &run] {
    for (const char* flag : {"--repeats", "--threads", "--json"}) {
      if (options->list) refuse_if_given(*command, flag, "with --list, which measures nothing");
    }
    run = [options] { return bench_ops(*options); };
  });
}

}  // namespace quire::cli
