#include "formats/safetensors.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <sys/stat.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "formats/mapped_file.h"
#include "formats/safetensors_writer.h"
#include "tests/support/data.h"

namespace quire::formats {
namespace {

using testing::HasSubstr;

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  // A new file each time: some file systems wait for the disk when one is written over.
  std::filesystem::remove(path);
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A file of this header and so many bytes of data, which count up from 0.
std::string file_of(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::filesystem::path stored_tensors(std::string_view bytes) {
  const auto path = test::temp_dir() / "model.safetensors";
  write_bytes(path, bytes);
  return path;
}

std::string error_in(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

std::string refusal(std::string_view bytes) {
  const auto path = stored_tensors(bytes);
  const std::string message = error_in([&] { Safetensors::open(path); });
  if (message != "no error") {
    EXPECT_THAT(message, HasSubstr(path.string()));
  }
  return message;
}

std::string header_error(std::string_view header, size_t data_bytes) {
  return refusal(file_of(header, data_bytes));
}

TEST(Safetensors, ReadsWhatItWrote) {
  const std::vector<float> floats = {1.0F, -2.5F, 3.0F, 0.0F, 5.0F, 6.0F};
  const std::vector<uint8_t> bytes = {1, 2, 3};
  const std::vector<int64_t> longs = {-1, INT64_MAX};
  const auto path = test::temp_dir() / "t.safetensors";
  const auto view = [](DType dtype, std::vector<int64_t> shape, const void* data) {
    return TensorView{dtype, std::move(shape), static_cast<const std::byte*>(data)};
  };
  write_safetensors(path,
                    {{"b", view(DType::kU8, {3}, bytes.data())},
                     {"a.weight", view(DType::kF32, {2, 3}, floats.data())},
                     {"empty", view(DType::kF16, {0, 7}, nullptr)},
                     {"scalar", view(DType::kI64, {}, &longs[1])},
                     {"l", view(DType::kI64, {2}, longs.data())}},
                    {{"format", "pt"}});
  const Safetensors file = Safetensors::open(path);
  EXPECT_EQ(file.tensors().size(), 5U);
  EXPECT_EQ(file.total_bytes(), 3U + 24 + 8 + 16);
  const TensorView& a = file.at("a.weight");  // lies at byte 3 of the data
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 4, 0U);
  EXPECT_EQ(std::memcmp(a.data, floats.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.at("b").data, bytes.data(), 3), 0);
  EXPECT_EQ(std::memcmp(file.at("l").data, longs.data(), 16), 0);
  EXPECT_EQ(file.at("scalar").num_elements(), 1U);
  EXPECT_EQ(file.at("empty").num_bytes(), 0U);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THAT(error_in([&] { file.at("c"); }), HasSubstr("t.safetensors: tensor 'c' is missing"));
}

TEST(Safetensors, WriterRefusesTheWrongNumberOfBytesAndLeavesNoFile) {
  const auto dir = test::temp_dir();
  {
    SafetensorsWriter writer(dir / "a", {{"x", DType::kF32, {2}}});
    writer.append(std::vector<std::byte>(4));
    EXPECT_THAT(error_in([&] { writer.finish(); }), HasSubstr("4 bytes of data where 8 were announced"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  EXPECT_THAT(error_in([&] { write_safetensors(dir / "no" / "file", {}); }), HasSubstr("cannot be written"));
}

TEST(Safetensors, HeaderErrorsSayWhereAndWhat) {
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("7 bytes, too short"));
  EXPECT_THAT(refusal(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
              HasSubstr("at byte 0: the header claims a length"));
  EXPECT_THAT(refusal(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("at byte 0: the header claims a length"));
  EXPECT_THAT(header_error("[]", 0), HasSubstr("at byte 8"));
  EXPECT_THAT(header_error("", 0), HasSubstr("at byte 8"));
  EXPECT_THAT(header_error("{\"a\": }", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_error(R"({"a":[]})", 0), HasSubstr("tensor 'a': an object was expected"));
  EXPECT_THAT(header_error(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("'dtype'"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("tensor 'a': unknown dtype 'F33'"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
              HasSubstr("'shape' has a value that is not a valid size"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
              HasSubstr("'shape' has a value that is not a valid size"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
              HasSubstr("'data_offsets' must be two numbers"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
              HasSubstr("not within the 4 bytes of data"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
              HasSubstr("not within"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("are 4 bytes, but dtype and shape say 8"));
  EXPECT_THAT(
      header_error(R"({"a":{"dtype":"F32","shape":[4294967296,4294967297],"data_offsets":[0,4]}})", 4),
      HasSubstr("'shape' is too large"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}})", 4),
              HasSubstr("not give a whole number of bytes"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                               "b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                           8),
              HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                               "a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                           8),
              HasSubstr(": at byte 94: tensor 'a' occurs twice"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 8),
              HasSubstr(": at byte 28: tensor 'a': key 'dtype' occurs twice"));
  EXPECT_THAT(header_error(R"({"\u0061":1,"a":2})", 8), HasSubstr("tensor 'a' occurs twice"));
  EXPECT_THAT(header_error(R"({x)", 8), HasSubstr(": at byte 9: not valid JSON"));
  EXPECT_THAT(header_error(R"({} {})", 0), HasSubstr(": at byte 11: text after the end of the header"));
  EXPECT_THAT(header_error(R"({"a")", 0), HasSubstr("not valid JSON: incomplete"));
  // The second lies on the first, and leaves a hole where it should be.
  EXPECT_THAT(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},
                               "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                           8),
              HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(header_error(R"({"a\nb":1})", 8), HasSubstr("'a?b'"));
}

TEST(Safetensors, HolesAreRefused) {
  const std::string two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                              "b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
  EXPECT_EQ(header_error(two, 8), "no error");
  const auto at = [](size_t header_size, size_t offset) {
    return fmt::format("at byte {}: ", 8 + header_size + offset);
  };
  EXPECT_THAT(header_error(two, 9), HasSubstr(at(two.size(), 8) + "the last 1 bytes belong to no tensor"));
  EXPECT_THAT(header_error("{}", 3), HasSubstr(at(2, 0) + "the last 3 bytes belong to no tensor"));
  EXPECT_EQ(header_error("{}", 0), "no error");
  const std::string gap = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                              "b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})";
  EXPECT_THAT(header_error(gap, 10),
              HasSubstr(at(gap.size(), 4) + "the 2 bytes before tensor 'b' belong to no tensor"));
  const std::string late = R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})";
  EXPECT_THAT(header_error(late, 5), HasSubstr(at(late.size(), 0) + "the 1 bytes before tensor 'b'"));
  // One without elements lies between two others, not inside one or beyond the end.
  const auto with_empty = [](size_t offset) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},
                            "e":{{"dtype":"F32","shape":[0],"data_offsets":[{0},{0}]}}}})",
                       offset);
  };
  EXPECT_EQ(header_error(with_empty(0), 4), "no error");
  EXPECT_EQ(header_error(with_empty(4), 4), "no error");
  EXPECT_THAT(header_error(with_empty(2), 4), HasSubstr("overlap"));
}

TEST(Safetensors, OddDTypesAreRefusedWhenAskedFor) {
  const Safetensors file = Safetensors::open(stored_tensors(file_of(
      R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[4,6]}} )",
      6)));
  EXPECT_EQ(file.at("b").dtype, DType::kU8);
  EXPECT_THAT(error_in([&] { file.at("a"); }), HasSubstr("tensor 'a' has dtype F8_E4M3"));
  EXPECT_THAT(error_in([&] { file.find("a"); }), HasSubstr("tensor 'a' has dtype F8_E4M3"));
}

TEST(Safetensors, MisalignedDataIsCopied) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  for (size_t pad = 0; pad < 8; ++pad) {
    const std::string bytes = file_of(header + std::string(pad, ' '), 8);
    const Safetensors file = Safetensors::open(stored_tensors(bytes));
    const TensorView& a = file.at("a");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 4, 0U);
    EXPECT_EQ(std::memcmp(a.data, bytes.data() + bytes.size() - 8, 8), 0);
  }
}

// What lies aligned may be read again from its file; a copy has no file behind it and must stay.
TEST(Safetensors, ReleasedTensorsKeepTheirValues) {
  constexpr size_t kDataBytes = 1 << 20;  // many pages
  const std::string header = fmt::format(R"({{"a":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})",
                                         kDataBytes / 4, kDataBytes);
  for (size_t pad = 0; pad < 4; ++pad) {
    const std::string bytes = file_of(header + std::string(pad, ' '), kDataBytes);
    const Safetensors file = Safetensors::open(stored_tensors(bytes));
    const TensorView& a = file.at("a");
    file.release(a);
    EXPECT_EQ(std::memcmp(a.data, bytes.data() + bytes.size() - kDataBytes, kDataBytes), 0) << pad;
  }
}

// `-o /dev/stdout` and the like: the target stays what it is.
TEST(Safetensors, PipesAndLinksAreWrittenToAsTheyAre) {
  const auto dir = test::temp_dir();
  const std::vector<float> values = {1.0F, 2.0F};
  const TensorView view{DType::kF32, {2}, reinterpret_cast<const std::byte*>(values.data())};
  const auto bytes_of = [](const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  write_safetensors(dir / "file", {{"a", view}});
  const std::string expected = bytes_of(dir / "file");

  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  auto read = std::async(std::launch::async, bytes_of, dir / "pipe");
  write_safetensors(dir / "pipe", {{"a", view}});
  EXPECT_EQ(read.get(), expected);
  EXPECT_TRUE(std::filesystem::is_fifo(dir / "pipe"));

  write_bytes(dir / "target", std::string(10000, 'x'));
  std::filesystem::create_symlink("target", dir / "link");
  write_safetensors(dir / "link", {{"a", view}});
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(bytes_of(dir / "target"), expected);
  {
    // An end before its time removes nothing that was there.
    SafetensorsWriter writer(dir / "link", {{"x", DType::kF32, {2}}});
  }
  EXPECT_EQ(bytes_of(dir / "target"), expected);
  EXPECT_THAT(error_in([&] { write_safetensors(dir, {{"a", view}}); }), HasSubstr("cannot be written"));
  EXPECT_THAT(error_in([&] {
                write_safetensors("/dev/full", {{"a", view}});
              }),
              HasSubstr("/dev/full: cannot be written"));
}

TEST(Safetensors, NoSuchFile) {
  const auto dir = test::temp_dir();
  EXPECT_THAT(error_in([&] { Safetensors::open(dir); }), HasSubstr("neither model.safetensors nor"));
  EXPECT_THAT(error_in([&] { Safetensors::open(dir / "x.safetensors"); }),
              HasSubstr("x.safetensors: No such"));
  EXPECT_THAT(error_in([&] { MappedFile("/dev/zero"); }), HasSubstr("not a regular file"));
}

class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    const auto view = [](const std::vector<float>& v) {
      return TensorView{
          DType::kF32, {static_cast<int64_t>(v.size())}, reinterpret_cast<const std::byte*>(v.data())};
    };
    const std::vector<float> one = {1.0F};
    const std::vector<float> two = {2.0F, 3.0F};
    write_safetensors(dir_ / "s1.safetensors", {{"a", view(one)}, {"stale", view(one)}});
    write_safetensors(dir_ / "s2.safetensors", {{"b", view(two)}});
  }
  void index(std::string_view text) { write_bytes(dir_ / "model.safetensors.index.json", text); }
  std::string error() {
    return error_in([&] { Safetensors::open(dir_); });
  }
  std::filesystem::path dir_ = test::temp_dir();
};

TEST_F(Sharded, FollowsTheIndex) {
  index(R"({"metadata":{"total_size":12},"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");
  const Safetensors file = Safetensors::open(dir_);
  EXPECT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(*file.at("a").as<float>(), 1.0F);
  EXPECT_EQ(file.at("b").as<float>()[1], 3.0F);
  EXPECT_EQ(Safetensors::open(dir_ / "model.safetensors.index.json").tensors().size(), 2U);
}

TEST_F(Sharded, BadIndexes) {
  index("{}");
  EXPECT_THAT(error(), HasSubstr("index.json: key 'weight_map': missing"));
  index(R"({"weight_map":{"a":"s3.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("s3.safetensors: No such file"));
  index(R"({"weight_map":{"b":"s1.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("s1.safetensors: tensor 'b' is missing"));
  for (const char* shard : {"\"../s1.safetensors\"", "\"/etc/passwd\"", "\"..\"", "\"\"", "1", "null",
                            "\"a\\u0000b\"", "\"a\\\\b\""}) {
    index(fmt::format(R"({{"weight_map":{{"a":{}}}}})", shard));
    EXPECT_THAT(error(), HasSubstr("tensor 'a': a shard must be")) << shard;
  }
}

// Whatever bytes the header has, the file opens with views inside it or gives an Error.
TEST(Safetensors, MutatedFilesNeverCrash) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  for (int i = 0; i < 6; ++i) {
    header += fmt::format(R"(,"layers.{}.weight":{{"dtype":"{}","shape":[{},4],"data_offsets":[{},{}]}})", i,
                          i % 2 == 0 ? "F32" : "BF16", i % 2 == 0 ? 2 : 4, i * 32, i * 32 + 32);
  }
  header += "}";
  const std::string good = file_of(header, 6 * 32);
  ASSERT_NO_THROW(Safetensors::open(stored_tensors(good)));

  SplitMix64 rng(7);
  const auto path = test::temp_dir() / "mutated.safetensors";
  const std::string_view spice = "0123456789{}[]\":,.-eE \\u\x80\xff\0ntF";
  int opened = 0;
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    const size_t head = 8 + header.size();
    for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const size_t at = rng.below(std::min(head, bytes.size()));
      switch (rng.below(5)) {
        case 0:
          bytes[at] = static_cast<char>(rng.next());
          break;
        case 1:
          bytes[at] = spice[rng.below(spice.size())];
          break;
        case 2:
          bytes.insert(at, 1, spice[rng.below(spice.size())]);
          break;
        case 3:
          bytes.erase(at, 1 + rng.below(8));
          break;
        default:
          bytes.resize(1 + rng.below(bytes.size()));
      }
    }
    // Half of the time the length is right again, so that the mutation reaches the JSON and the checks.
    if (rng.below(2) == 0 && bytes.size() > 8) {
      const uint64_t length = bytes.rfind('}') == std::string::npos ? 0 : bytes.rfind('}') + 1 - 8;
      std::memcpy(bytes.data(), &length, 8);
    }
    write_bytes(path, bytes);
    try {
      const Safetensors file = Safetensors::open(path);
      unsigned sum = 0;
      for (const auto& [name, view] : file.tensors()) {
        ASSERT_LE(view.num_bytes(), bytes.size());
        for (size_t i = 0; i < view.num_bytes(); ++i) sum += std::to_integer<unsigned>(view.data[i]);
      }
      opened += sum < UINT32_MAX ? 1 : 0;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(opened, 10);
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, OpensTheGoldenModels) {
  QUIRE_NEEDS_DATA("golden-models");
  for (const auto& entry : std::filesystem::directory_iterator(test::data_dir() / "golden-models")) {
    if (!entry.is_directory()) continue;
    EXPECT_GT(Safetensors::open(entry.path()).tensors().size(), 10U);
    EXPECT_EQ(Safetensors::open(entry.path() / "expected.safetensors").at("logits").shape,
              (std::vector<int64_t>{2, 48, 512}));
  }
}

TEST(MappedFile, ReleasedPagesComeBack) {
  const auto path = test::temp_dir() / "f";
  write_bytes(path, std::string(100000, 'x'));
  const MappedFile file(path);
  for (size_t begin : {size_t{0}, size_t{1}, size_t{4096}, size_t{99999}}) {
    prefetch_pages(file.data() + begin, file.size() - begin);
    file.release_pages(file.data() + begin, file.size() - begin);
    EXPECT_EQ(file.data()[begin], std::byte{'x'});
    EXPECT_EQ(file.data()[file.size() - 1], std::byte{'x'});
  }
}

}  // namespace
}  // namespace quire::formats
