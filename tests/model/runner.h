#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "backend/cpu/decoder.h"
#include "base/thread_pool.h"
#include "formats/model_config.h"
#include "kernels/context.h"

namespace quire::test {

/// A decoder with a K/V cache of its own and sequences that own blocks in it, scattered on purpose.
class Runner {
 public:
  Runner(const std::filesystem::path& dir, kernels::IsaLevel isa, uint32_t threads,
         std::optional<DType> compute = std::nullopt, uint32_t max_positions = 0, uint32_t num_blocks = 64,
         uint32_t block_size = 16, uint32_t sliding_window = 0)
      : Runner(dir, isa, threads, {.compute = compute, .own_blocks = false, .max_positions = max_positions},
               num_blocks, block_size, sliding_window) {}
  Runner(const std::filesystem::path& dir, kernels::IsaLevel isa, uint32_t threads,
         const backend::cpu::DecoderOptions& options, uint32_t num_blocks = 64, uint32_t block_size = 16,
         uint32_t sliding_window = 0)
      : pool_(threads),
        context_{isa, pool_},
        decoder_(backend::cpu::Decoder::load(dir, config_of(dir, sliding_window), options, context_)),
        num_groups_(static_cast<uint32_t>(decoder_->shape().kv_windows.size())),
        cache_(decoder_->config(), decoder_->compute_dtype(), num_blocks * num_groups_, block_size) {
    const uint32_t all = cache_.num_blocks();
    for (uint32_t block = 0; block < all; ++block) free_.push_back((block * 37 + 11) % all);
  }

  static model::ModelConfig config_of(const std::filesystem::path& dir, uint32_t sliding_window) {
    model::ModelConfig config = formats::load_model_config(dir);
    model::limit_windows(config, sliding_window);
    return config;
  }

  const model::ModelConfig& config() const { return decoder_->config(); }
  backend::cpu::Decoder& decoder() { return *decoder_; }
  backend::cpu::KvCache& cache() { return cache_; }
  kernels::KernelContext& context() { return context_; }

  struct Part {
    size_t seq = 0;
    std::vector<TokenId> tokens;
    uint32_t logit_rows = 0;
  };

  /// One step; the logits asked for, one row after the other.
  std::vector<float> step(const std::vector<Part>& parts) {
    std::vector<TokenId> tokens;
    std::vector<decoder::BatchSeq> seqs;
    for (const Part& part : parts) {
      if (part.seq >= tables_.size()) tables_.resize(part.seq + 1), lengths_.resize(part.seq + 1);
      const uint32_t first = lengths_[part.seq];
      lengths_[part.seq] += static_cast<uint32_t>(part.tokens.size());
      tables_[part.seq].resize(num_groups_);
      for (std::vector<BlockId>& table : tables_[part.seq]) {
        while (table.size() * cache_.block_size() < lengths_[part.seq]) {
          table.push_back(free_.back());
          free_.pop_back();
        }
      }
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      seqs.push_back({static_cast<uint32_t>(part.tokens.size()), first, {}, part.logit_rows});
    }
    for (size_t i = 0; i < parts.size(); ++i) seqs[i].block_tables = tables_[parts[i].seq];
    const auto logits = decoder_->forward(context_, cache_, tokens, seqs);
    return {logits.begin(), logits.end()};
  }

  /// Forgets all sequences.
  void reset() {
    for (auto& tables : tables_) {
      for (auto& table : tables) free_.insert(free_.end(), table.rbegin(), table.rend());
    }
    tables_.clear();
    lengths_.clear();
  }

  /// The logits of every position of one sequence alone, computed in chunks.
  std::vector<float> all_logits(std::span<const TokenId> ids, size_t chunk) {
    reset();
    std::vector<float> out;
    for (size_t at = 0; at < ids.size(); at += chunk) {
      const auto piece = ids.subspan(at, std::min(chunk, ids.size() - at));
      const auto logits = step({{0, {piece.begin(), piece.end()}, static_cast<uint32_t>(piece.size())}});
      out.insert(out.end(), logits.begin(), logits.end());
    }
    return out;
  }

  struct Greedy {
    std::vector<TokenId> ids;
    std::vector<float> logits;  // of the row that each was chosen from
  };

  /// The continuation of a prompt by arg max.
  Greedy greedy(std::span<const TokenId> prompt, size_t count, size_t chunk) {
    reset();
    std::vector<float> row;
    for (size_t at = 0; at < prompt.size(); at += chunk) {
      const auto piece = prompt.subspan(at, std::min(chunk, prompt.size() - at));
      row = step({{0, {piece.begin(), piece.end()}, 1}});
    }
    Greedy out;
    while (true) {
      out.ids.push_back(best(row));
      out.logits.insert(out.logits.end(), row.begin(), row.end());
      if (out.ids.size() == count) return out;
      row = step({{0, {out.ids.back()}, 1}});
    }
  }

  static TokenId best(std::span<const float> row) {
    return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  }

 private:
  ThreadPool pool_;
  kernels::KernelContext context_;
  std::unique_ptr<backend::cpu::Decoder> decoder_;
  uint32_t num_groups_;
  backend::cpu::KvCache cache_;
  std::vector<BlockId> free_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  // by sequence and K/V group
  std::vector<uint32_t> lengths_;
};

}  // namespace quire::test
