#include "backend/cpu/pack_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/file_error.h"
#include "base/log.h"

namespace quire::backend::cpu {
namespace {

constexpr std::string_view kFormatKey = "quire_packed_weights";
constexpr int kFormat = 1;
constexpr uint64_t kAlignment = 4096;
constexpr uint64_t kMostLine = uint64_t{256} << 20;
constexpr int64_t kMostDimension = int64_t{1} << 28;  // no product of two of them overflows
constexpr size_t kPiece = size_t{1} << 20;            // bytes under one checksum

/// The end of the file, little-endian.
struct End {
  char magic[8];
  uint64_t line_bytes;
  uint64_t line_sum;
};
constexpr char kMagic[8] = {'q', 'u', 'i', 'r', 'e', 'p', 'k', '\n'};

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Of the checksums of the pieces, so that threads may share the work.
uint64_t sum_of(std::span<const uint64_t> piece_sums) { return formats::checksum(std::as_bytes(piece_sums)); }

size_t pieces_of(uint64_t bytes) { return (bytes + kPiece - 1) / kPiece; }

uint64_t sum_of_pieces(std::span<const std::byte> bytes, kernels::KernelContext& context) {
  std::vector<uint64_t> sums(pieces_of(bytes.size()));
  context.pool.parallel_for(sums.size(), 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t piece = begin; piece < end; ++piece) {
      const size_t at = piece * kPiece;
      sums[piece] = formats::checksum(bytes.subspan(at, std::min(kPiece, bytes.size() - at)));
    }
  });
  return sum_of(sums);
}

std::optional<WeightFormat> parse_weight_format(std::string_view name) {
  for (size_t i = 0; i < kNumWeightFormats; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (name == weight_format_name(format)) return format;
  }
  return std::nullopt;
}

std::string_view name_of(const WeightSetting& setting) {
  return setting.own_blocks ? "blocks" : weight_format_name(setting.format);
}

std::string with_compute_type(const WeightSetting& setting) {
  const bool said = !setting.own_blocks && weight_format_of(setting.compute) == setting.format;
  // Experts' routers, and what a quantized file expands to, are of the compute type.
  return said ? std::string(name_of(setting))
              : fmt::format("{}-{}", dtype_name(setting.compute), name_of(setting));
}

}  // namespace

json::object pack_facts(const formats::Checkpoint& checkpoint, const WeightSetting& setting) {
  json::array files;
  for (const formats::CheckpointFile& file : checkpoint.files()) {
    files.push_back(json::object{{"name", file.name},
                                 {"bytes", file.bytes},
                                 {"modified", file.modified},
                                 {"header", formats::checksum_text(file.header_sum)}});
  }
  json::object facts{{"checkpoint", std::move(files)},
                     {"compute", dtype_name(setting.compute)},
                     {"weights", name_of(setting)},
                     {"pack_version", kernels::kPackVersion}};
  if (std::filesystem::is_directory(checkpoint.path())) {
    const std::string config = read_file(checkpoint.path() / "config.json");
    facts["config"] = formats::checksum_text(formats::checksum(std::as_bytes(std::span(config))));
  }
  return facts;
}

std::filesystem::path pack_file_path(const std::filesystem::path& dir, const std::filesystem::path& model,
                                     const WeightSetting& setting) {
  const std::string kind = with_compute_type(setting);
  const bool is_directory = std::filesystem::is_directory(model);
  if (dir.empty()) {
    if (is_directory) return model / fmt::format("packed-{}.quire", kind);
    return model.parent_path() / fmt::format("{}-packed-{}.quire", model.filename().string(), kind);
  }
  const std::filesystem::path whole = std::filesystem::canonical(model);
  const std::string_view text = whole.native();
  return dir / fmt::format("{}-{}-packed-{}.quire", whole.filename().string(),
                           formats::checksum_text(formats::checksum(std::as_bytes(std::span(text)))), kind);
}

PackFile::PackFile(const std::filesystem::path& path, const json::object& facts,
                   kernels::KernelContext& context, formats::FileAccess access)
    : file_(path, access) {
  read_line(read_end(), facts);
  compare_sums(context);
}

uint64_t PackFile::read_end() const {
  End end;
  if (file_.size() < sizeof(end))
    throw file_error(file_.path(), "not a file of packed weights, or truncated");
  const uint64_t line_end = file_.size() - sizeof(end);
  std::memcpy(&end, file_.data() + line_end, sizeof(end));
  if (std::memcmp(end.magic, kMagic, sizeof(kMagic)) != 0) {
    throw file_error(file_.path(), "not a file of packed weights, or truncated");
  }
  if (end.line_bytes > std::min(line_end, kMostLine)) {
    throw file_error(file_.path(), line_end, "the line before it cannot be so long");
  }
  const uint64_t begin = line_end - end.line_bytes;
  if (formats::checksum({file_.data() + begin, end.line_bytes}) != end.line_sum) {
    throw file_error(file_.path(), begin, "the list of matrices is damaged");
  }
  return begin;
}

void PackFile::read_line(uint64_t begin, const json::object& facts) {
  const std::filesystem::path& path = file_.path();
  const auto* text = reinterpret_cast<const char*>(file_.data());
  const json::value line =
      parse_json(std::string_view(text + begin, file_.size() - sizeof(End) - begin), path);
  const JsonObject object(line, path);
  object.integer(kFormatKey, kFormat, kFormat);
  formats::require_same_facts(object.object("facts"), facts);
  const json::value* matrices = object.find("matrices");
  if (matrices == nullptr || !matrices->is_array()) throw object.error("matrices", "a list was expected");
  uint64_t at = 0;
  for (const json::value& each : matrices->get_array()) {
    const JsonObject matrix(each, path, "matrices");
    Entry entry;
    entry.n = static_cast<size_t>(matrix.integer("n", 0, kMostDimension));
    entry.k = static_cast<size_t>(matrix.integer("k", 0, kMostDimension));
    const auto format = parse_weight_format(matrix.string("format"));
    if (!format) throw matrix.error("format", "is not a format of weights");
    entry.format = *format;
    entry.finite = matrix.boolean("finite");
    entry.begin = at;
    entry.bytes = kernels::PackedMatrix::bytes_of(entry.n, entry.k, entry.format);
    const std::string sum = matrix.string("sum");
    entry.sum = std::strtoull(sum.c_str(), nullptr, 16);
    if (entry.bytes > begin - at) throw file_error(path, at, "a matrix is cut off");
    at = aligned(at + entry.bytes);
    if (at > begin) throw file_error(path, begin, "a matrix is cut off");
    matrices_.push_back(entry);
  }
  if (at != begin) throw file_error(path, at, "there is data after the matrices");
}

void PackFile::compare_sums(kernels::KernelContext& context) const {
  struct Piece {
    const std::byte* data;
    size_t bytes;
  };
  std::vector<Piece> pieces;
  for (const Entry& entry : matrices_) {
    for (size_t at = 0; at < entry.bytes; at += kPiece) {
      pieces.push_back({file_.data() + entry.begin + at, std::min<size_t>(kPiece, entry.bytes - at)});
    }
  }
  formats::prefetch_pages(file_.data(), file_.size());
  std::vector<uint64_t> sums(pieces.size());
  context.pool.parallel_for(pieces.size(), 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) sums[i] = formats::checksum({pieces[i].data, pieces[i].bytes});
  });
  size_t first = 0;
  for (const Entry& entry : matrices_) {
    const size_t count = pieces_of(entry.bytes);
    if (sum_of(std::span(sums).subspan(first, count)) != entry.sum) {
      throw file_error(file_.path(), entry.begin,
                       fmt::format("matrix {} is damaged", &entry - matrices_.data()));
    }
    first += count;
  }
}

kernels::PackedMatrix PackFile::matrix(size_t index, size_t n, size_t k, WeightFormat format) const {
  if (index >= matrices_.size()) {
    throw OtherMatrices(
        file_error(file_.path(), fmt::format("has {} matrices, but the model has more", matrices_.size()))
            .what());
  }
  const Entry& entry = matrices_[index];
  if (entry.n != n || entry.k != k || entry.format != format) {
    const std::string what =
        fmt::format("matrix {} is [{}, {}] of {}, and the model's [{}, {}] of {}", index, entry.n, entry.k,
                    weight_format_name(entry.format), n, k, weight_format_name(format));
    throw OtherMatrices(file_error(file_.path(), entry.begin, what).what());
  }
  return {n, k, format, file_.data() + entry.begin, entry.finite};
}

void PackFileWriter::add(const kernels::PackedMatrix& matrix, kernels::KernelContext& context) {
  if (is_taken()) return;
  out_.write(matrix.bytes());
  out_.pad(kAlignment);
  matrices_.push_back(json::object{{"n", matrix.n()},
                                   {"k", matrix.k()},
                                   {"format", weight_format_name(matrix.format())},
                                   {"finite", matrix.finite()},
                                   {"sum", formats::checksum_text(sum_of_pieces(matrix.bytes(), context))}});
}

void PackFileWriter::finish() {
  const std::string line = json::serialize(
      json::object{{kFormatKey, kFormat}, {"facts", std::move(facts_)}, {"matrices", std::move(matrices_)}});
  End end{};
  std::memcpy(end.magic, kMagic, sizeof(kMagic));
  end.line_bytes = line.size();
  end.line_sum = formats::checksum(std::as_bytes(std::span(line)));
  out_.write(line);
  out_.write(std::as_bytes(std::span(&end, 1)));
  out_.commit();
}

PackCache::PackCache(std::filesystem::path path, const std::filesystem::path& model, json::object facts,
                     kernels::KernelContext& context, formats::FileAccess access, Start start)
    : path_(std::move(path)), context_(context) {
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) {
    const bool is_there = std::filesystem::exists(folder, failed);
    throw Error(fmt::format(
        "--pack-cache: {} cannot be written: {}", path_.string(),
        is_there ? fmt::format("{} is no folder", folder.string()) : "its folder does not exist"));
  }
  struct stat facts_of_model {};
  std::optional<uid_t> owner;
  if (stat(model.c_str(), &facts_of_model) == 0) owner = facts_of_model.st_uid;
  if (start == Start::kFromFile && std::filesystem::exists(path_, failed)) read_file(facts, access, owner);
  if (file_ == nullptr) begin_file(std::move(facts), owner);
}

void PackCache::read_file(const json::object& facts, formats::FileAccess access, std::optional<uid_t> owner) {
  try {
    formats::refuse_file_of_others(path_, owner);
    file_ = std::make_unique<PackFile>(path_, facts, context_, access);
  } catch (const Error& error) {
    log_warning(fmt::format("{} (the weights are packed anew)", error.what()));
  }
}

void PackCache::begin_file(json::object facts, std::optional<uid_t> owner) {
  try {
    formats::refuse_folder_of_others(path_, owner);  // the next start would not use it
    writer_ = std::make_unique<PackFileWriter>(path_, std::move(facts));
  } catch (const Error& error) {
    stop_writing(error);
  }
}

void PackCache::stop_writing(const Error& why) {
  writer_.reset();
  log_warning(
      fmt::format("{} (the packed weights are not kept, and the next start packs them again; --pack-cache "
                  "DIR names another "
                  "folder)",
                  why.what()));
}

kernels::PackedMatrix PackCache::next(size_t n, size_t k, WeightFormat format,
                                      const std::function<kernels::PackedMatrix()>& pack) {
  if (file_ != nullptr) return file_->matrix(next_++, n, k, format);
  kernels::PackedMatrix packed = pack();
  if (writer_ == nullptr) return packed;
  try {
    writer_->add(packed, context_);
  } catch (const Error& error) {
    stop_writing(error);
  }
  return packed;
}

void PackCache::finish() {
  if (file_ != nullptr) {
    if (next_ != file_->size()) {
      throw OtherMatrices(
          file_error(path_, fmt::format("has {} matrices, but the model has {}", file_->size(), next_))
              .what());
    }
    log_info(fmt::format("the packed weights are those of {}", path_.string()));
    return;
  }
  if (writer_ == nullptr) return;
  try {
    if (writer_->is_taken()) {
      log_info(fmt::format("{}: another process is writing it", path_.string()));
    } else {
      writer_->finish();
      log_info(fmt::format("the packed weights are in {}", path_.string()));
    }
    writer_.reset();
  } catch (const Error& error) {
    stop_writing(error);
  }
}

}  // namespace quire::backend::cpu
