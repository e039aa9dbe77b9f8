// Packed weights in a file: the same numbers with and without, and what is wrong with the file costs time
// only.
#include "backend/cpu/pack_cache.h"

#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>

#include "backend/cpu/decoder.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Loaded {
  std::vector<float> logits;
  std::string said;
};

class PackCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::temp_dir() / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    model_ = dir_ / "model";
    begin_with("llama-odd");
  }

  void begin_with(const std::string& fixture) const {
    std::filesystem::remove_all(model_);
    std::filesystem::copy("tests/model/fixtures/" + fixture, model_,
                          std::filesystem::copy_options::recursive);
  }

  static std::vector<float> logits_of(const std::filesystem::path& model,
                                      const backend::cpu::DecoderOptions& options) {
    ThreadPool pool(2);
    kernels::KernelContext context{kernels::best_isa_level(), pool};
    const auto decoder = backend::cpu::Decoder::load(model, options, context);
    backend::cpu::KvCache cache(decoder->config(), DType::kF32, 1, 16);
    const std::vector<std::vector<BlockId>> tables = {{0}};
    const std::vector<TokenId> tokens = {3, 1, 4, 1, 5};
    const decoder::BatchSeq seq{5, 0, tables, 5};
    const auto logits = decoder->forward(context, cache, tokens, {&seq, 1});
    return {logits.begin(), logits.end()};
  }

  Loaded load(backend::cpu::DecoderOptions options = {}) const {
    testing::internal::CaptureStderr();
    Loaded out;
    try {
      out.logits = logits_of(model_, options);
    } catch (...) {
      testing::internal::GetCapturedStderr();
      throw;
    }
    out.said = testing::internal::GetCapturedStderr();
    return out;
  }

  Loaded load_kept() const { return load({.pack_cache = ""}); }

  std::filesystem::path file() const {
    std::filesystem::path found;
    for (const auto& entry : std::filesystem::directory_iterator(model_)) {
      if (entry.path().extension() == ".quire") found = entry.path();
    }
    return found;
  }

  static std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::filesystem::path dir_;
  std::filesystem::path model_;
};

TEST_F(PackCacheTest, GivesTheSameLogitsInEveryFormat) {
  const std::vector<backend::cpu::DecoderOptions> all = {
      {.compute = DType::kF32},
      {.compute = DType::kF16},
      {.compute = DType::kBF16},
      {.compute = DType::kBF16, .quantization = WeightFormat::kInt8},
      {.compute = DType::kF32, .quantization = WeightFormat::kInt8},
      {.quantization = WeightFormat::kInt4},
  };
  for (const char* fixture : {"llama-odd", "qwen3-moe-odd"}) {
    begin_with(fixture);
    for (backend::cpu::DecoderOptions options : all) {
      const std::vector<float> without = load(options).logits;
      options.pack_cache = "";
      const Loaded first = load(options);
      EXPECT_THAT(first.said, HasSubstr("the packed weights are in"));
      const Loaded second = load(options);
      EXPECT_THAT(second.said, HasSubstr("the packed weights are those of"));
      EXPECT_EQ(first.logits, without);
      EXPECT_EQ(second.logits, without);
    }
  }
}

TEST_F(PackCacheTest, DamageIsRepaired) {
  const std::vector<float> expected = load_kept().logits;
  const std::filesystem::path path = file();
  const std::string whole = bytes_of(path);
  ASSERT_GT(whole.size(), 10000U);
  const size_t line = whole.rfind("{\"quire_packed_weights");
  ASSERT_NE(line, std::string::npos);
  std::vector<std::pair<std::string, std::string>> cases;
  for (const size_t length : {size_t{0}, size_t{1}, size_t{23}, size_t{24}, size_t{4096}, size_t{5000}, line,
                              line + 100, whole.size() - 24, whole.size() - 1}) {
    cases.emplace_back("cut to " + std::to_string(length), whole.substr(0, length));
  }
  for (const size_t at : {size_t{0}, size_t{4100}, line / 2 / 4096 * 4096, line + 3, whole.size() - 24,
                          whole.size() - 15, whole.size() - 1}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    cases.emplace_back("a bit of byte " + std::to_string(at), flipped);
  }
  cases.emplace_back("longer", whole + whole);
  cases.emplace_back("another file", std::string(10000, 'x'));
  for (const auto& [name, content] : cases) {
    write(path, content);
    const Loaded loaded = load_kept();
    EXPECT_EQ(loaded.logits, expected) << name;
    EXPECT_THAT(loaded.said, HasSubstr("packed anew")) << name;
    EXPECT_EQ(bytes_of(path), whole) << name;
  }
}

/// The file with another line, whose checksum is right.
std::string with_line(const std::string& whole, const std::string& from, const std::string& to) {
  const size_t begin = whole.rfind("{\"quire_packed_weights");
  std::string line = whole.substr(begin, whole.size() - 24 - begin);
  const size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  line.replace(at, from.size(), to);
  const uint64_t numbers[] = {line.size(), formats::checksum(std::as_bytes(std::span(line)))};
  std::string out = whole.substr(0, begin) + line + whole.substr(whole.size() - 24, 8);
  out.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  return out;
}

TEST_F(PackCacheTest, SizesAreNotTrusted) {
  const std::vector<float> expected = load_kept().logits;
  const std::filesystem::path path = file();
  const std::string whole = bytes_of(path);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"n\":", "\"n\":9"},
                                 {"\"n\":", "\"n\":-"},
                                 {"\"n\":", "\"n\":26843545"},
                                 {"\"k\":", "\"k\":99999999999999"},
                                 {"\"bf16\",\"finite\"", "\"bf17\",\"finite\""},
                                 {"\"bf16\",\"finite\"", "\"int4\",\"finite\""},
                                 {"\"matrices\":[", "\"matrices\":[[],"},
                                 {"\"matrices\":[", "\"matrices\":3,\"x\":["},
                                 {"\"sum\":\"", "\"sum\":\"1"},
                                 {"\"facts\":{", "\"facts\":{\"compute\":1,\"y\":{},\"z"},
                                 {"weights\":1", "weights\":2"},
                                 {"pack_version\":1", "pack_version\":2"},
                                 {"{\"quire", "[\"quire"}}) {
    write(path, with_line(whole, from, to));
    const Loaded loaded = load_kept();
    EXPECT_EQ(loaded.logits, expected) << to;
    EXPECT_THAT(loaded.said, HasSubstr("packed anew")) << to;
    EXPECT_EQ(bytes_of(path), whole) << to;
  }
  // Right in itself, but of another model.
  const size_t n = whole.rfind("\"n\":");
  const size_t end = whole.find(',', n);
  const std::string last = whole.substr(n, end - n);
  const size_t list = whole.rfind("{\"n\":");
  const size_t list_end = whole.find('}', list) + 1;
  const std::string entry = whole.substr(list, list_end - list);
  write(path, with_line(whole, entry,
                        R"({"n":0,"k":0,"format":"f32","finite":true,"sum":"2d06800538d394c2"},)" + entry));
  const Loaded loaded = load_kept();
  EXPECT_EQ(loaded.logits, expected) << last;
  EXPECT_THAT(loaded.said, HasSubstr("packed anew"));
  EXPECT_THAT(loaded.said, HasSubstr(path.string()));
  EXPECT_EQ(bytes_of(path), whole);
}

TEST_F(PackCacheTest, AChangedCheckpointIsPackedAnew) {
  const std::vector<float> before = load_kept().logits;
  const std::filesystem::path weights = model_ / "model.safetensors";
  std::string bytes = bytes_of(weights);
  for (size_t at = bytes.size() - 512; at < bytes.size(); at += 2)
    bytes[at] = static_cast<char>(bytes[at] ^ 8);
  write(weights, bytes);
  const std::vector<float> expected = load().logits;
  EXPECT_NE(expected, before);
  const Loaded loaded = load_kept();
  EXPECT_EQ(loaded.logits, expected);
  EXPECT_THAT(loaded.said, HasSubstr("packed anew"));
  EXPECT_THAT(load_kept().said, Not(HasSubstr("packed anew")));
  // So does a config that may mean other weights.
  write(model_ / "config.json", bytes_of(model_ / "config.json") + " ");
  EXPECT_THAT(load_kept().said, HasSubstr("packed anew"));
}

TEST_F(PackCacheTest, OneMatrixMoreOrLessIsPackedAnew) {
  const std::vector<float> expected = load_kept().logits;
  const std::filesystem::path path = file();
  const std::string whole = bytes_of(path);
  const std::string nothing = R"({"n":0,"k":0,"format":"f32","finite":true,"sum":"2d06800538d394c2"})";
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"\"matrices\":[", "\"matrices\":[" + nothing + ","},
        {"}]}", "}," + nothing + "]}"}}) {
    write(path, with_line(whole, from, to));
    const Loaded loaded = load_kept();
    EXPECT_EQ(loaded.logits, expected) << to;
    EXPECT_THAT(loaded.said, HasSubstr("packed anew")) << to;
    EXPECT_EQ(bytes_of(path), whole) << to;
  }
}

TEST_F(PackCacheTest, ADiskThatIsFullCostsTimeOnly) {
  const std::vector<float> expected = load().logits;
  load_kept();
  const std::string whole = bytes_of(file());
  std::filesystem::remove(file());
  signal(SIGXFSZ, SIG_IGN);  // writing fails with EFBIG
  rlimit former{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &former), 0);
  // The file that standard error is captured in may be as long.
  for (const size_t most : {size_t{4096}, size_t{10000}, whole.size() - 1}) {
    rlimit small = former;
    small.rlim_cur = most;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Loaded loaded = load_kept();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &former), 0);
    EXPECT_EQ(loaded.logits, expected) << most;
    EXPECT_THAT(loaded.said, HasSubstr("cannot be written: File too large")) << most;
    EXPECT_THAT(loaded.said, HasSubstr("are not kept")) << most;
    EXPECT_EQ(file(), "") << most;
    for (const auto& entry : std::filesystem::directory_iterator(model_)) {
      EXPECT_NE(entry.path().extension(), ".part") << most;
    }
  }
  EXPECT_THAT(load_kept().said, HasSubstr("the packed weights are in"));
}

TEST_F(PackCacheTest, WhatOthersMayWriteIsNotUsed) {
  namespace fs = std::filesystem;
  const std::vector<float> expected = load_kept().logits;
  const fs::path path = file();
  EXPECT_EQ(fs::status(path).permissions() & fs::perms(022), fs::perms::none);
  fs::permissions(path, fs::perms(0666));
  Loaded loaded = load_kept();
  EXPECT_EQ(loaded.logits, expected);
  EXPECT_THAT(loaded.said, HasSubstr(path.string() + ": is not trusted: other users may write it"));
  EXPECT_THAT(loaded.said, HasSubstr("the packed weights are in"));
  EXPECT_EQ(fs::status(path).permissions() & fs::perms(022), fs::perms::none);
  EXPECT_THAT(load_kept().said, HasSubstr("the packed weights are those of"));
  // In such a folder a new one would be no better.
  fs::permissions(model_, fs::perms(0777));
  loaded = load_kept();
  EXPECT_EQ(loaded.logits, expected);
  EXPECT_THAT(loaded.said, HasSubstr(model_.string() + ": is not trusted: other users may write it"));
  EXPECT_THAT(loaded.said, HasSubstr("are not kept"));
  fs::permissions(model_, fs::perms(0755));
}

TEST_F(PackCacheTest, NothingNeedsToBeMapped) {
  const std::vector<float> expected = load().logits;
  for (int i = 0; i < 3; ++i) {
    backend::cpu::DecoderOptions options{.access = formats::FileAccess::kRead};
    if (i > 0) options.pack_cache = "";
    const Loaded loaded = load(options);
    EXPECT_EQ(loaded.logits, expected);
    if (i > 0) {
      EXPECT_THAT(loaded.said,
                  HasSubstr(i == 1 ? "the packed weights are in" : "the packed weights are those of"));
    }
  }
}

TEST_F(PackCacheTest, WhereNothingCanBeWrittenSaysSo) {
  const std::vector<float> expected = load().logits;
  const Loaded loaded = load({.pack_cache = "/proc"});
  EXPECT_EQ(loaded.logits, expected);
  EXPECT_THAT(loaded.said, HasSubstr("cannot be written"));
  EXPECT_THAT(loaded.said, HasSubstr("--pack-cache DIR names another folder"));
  for (const std::filesystem::path& dir : {dir_ / "absent", model_ / "config.json"}) {
    try {
      load({.pack_cache = dir});
      FAIL() << dir;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--pack-cache"));
      EXPECT_THAT(error.what(), HasSubstr(dir.string()));
      EXPECT_THAT(error.what(), HasSubstr("cannot be written"));
    }
  }
}

TEST_F(PackCacheTest, ModelsOfOneNameHaveFilesOfTheirOwnInOneFolder) {
  const auto other = dir_ / "other" / "model";
  std::filesystem::create_directories(other.parent_path());
  std::filesystem::copy(model_, other, std::filesystem::copy_options::recursive);
  const auto kept = dir_ / "kept";
  std::filesystem::create_directories(kept);
  const auto a = backend::cpu::pack_file_path(kept, model_, {DType::kBF16, WeightFormat::kInt8});
  EXPECT_EQ(a.parent_path(), kept);
  EXPECT_NE(a, backend::cpu::pack_file_path(kept, other, {DType::kBF16, WeightFormat::kInt8}));
  EXPECT_NE(a, backend::cpu::pack_file_path(kept, model_, {DType::kBF16, WeightFormat::kInt4}));
  EXPECT_NE(a, backend::cpu::pack_file_path(kept, model_, {DType::kF32, WeightFormat::kInt8}));
  load({.pack_cache = kept});
  EXPECT_TRUE(std::filesystem::exists(
      backend::cpu::pack_file_path(kept, model_, {DType::kBF16, WeightFormat::kBF16})));
}

TEST_F(PackCacheTest, ManyAtOnceDoNoHarm) {
  const std::vector<float> expected = load().logits;
  std::vector<std::vector<float>> found(8);
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (std::vector<float>& logits : found) {
    threads.emplace_back([&] { logits = logits_of(model_, {.pack_cache = ""}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("packed anew")));
  for (const std::vector<float>& logits : found) EXPECT_EQ(logits, expected);
  EXPECT_THAT(load_kept().said, HasSubstr("the packed weights are those of"));
  for (const auto& entry : std::filesystem::directory_iterator(model_)) {
    EXPECT_NE(entry.path().extension(), ".part");
  }
}

TEST_F(PackCacheTest, WhatAKilledProcessLeftIsWrittenOver) {
  load_kept();
  const std::filesystem::path path = file();
  const std::string whole = bytes_of(path);
  std::filesystem::rename(path, path.string() + ".part");
  write(path.string() + ".part", whole + whole);
  load_kept();
  EXPECT_EQ(bytes_of(path), whole);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".part"));
}

TEST_F(PackCacheTest, WarnsOfWhatIsNotFiniteEachTime) {
  const std::filesystem::path weights = model_ / "model.safetensors";
  std::string bytes = bytes_of(weights);
  // In the middle of the file lies a matrix of bf16.
  const size_t at = bytes.size() / 2 / 2 * 2;
  bytes[at] = static_cast<char>(0xc0);
  bytes[at + 1] = 0x7f;
  write(weights, bytes);
  const std::string plain = load().said;
  EXPECT_THAT(plain, HasSubstr("is NaN or infinite"));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(load_kept().said, HasSubstr("is NaN or infinite"));
}

}  // namespace
}  // namespace quire::model
