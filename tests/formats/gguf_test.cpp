#include "formats/gguf.h"

#include <cstring>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/rng.h"
#include "formats/gguf_writer.h"
#include "tests/support/data.h"

namespace quire::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A GGUF file byte by byte, right or wrong.
class Bytes {
 public:
  Bytes(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    raw("GGUF").u32(version).u64(tensors).u64(keys);
  }

  Bytes& raw(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  template <class T>
  Bytes& number(T value) {
    return raw({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  Bytes& u32(uint32_t value) { return number(value); }
  Bytes& u64(uint64_t value) { return number(value); }
  Bytes& string(std::string_view text) { return u64(text.size()).raw(text); }
  Bytes& key(std::string_view name, GgufType type) { return string(name).u32(static_cast<uint32_t>(type)); }
  Bytes& array(GgufType element, uint64_t count) { return u32(static_cast<uint32_t>(element)).u64(count); }
  Bytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    string(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  /// Pads to the alignment and adds so many bytes that count up.
  Bytes& data(size_t count, size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    for (size_t i = 0; i < count; ++i) text_ += static_cast<char>(i);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::filesystem::path stored(std::string_view bytes) {
  static const auto path = test::temp_dir() / "model.gguf";
  std::filesystem::remove(
      path);  // a file truncated and written again is flushed to the disk, which takes long
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

std::string open_error(std::string_view bytes) {
  const auto path = stored(bytes);
  const std::string message = error_of([&] { Gguf::open(path); });
  if (message != "no error") {
    EXPECT_THAT(message, HasSubstr(path.string()));
  }
  return message;
}
std::string open_error(const Bytes& bytes) { return open_error(bytes.text()); }

/// A file with a value of every type and three tensors.
Bytes sample() {
  Bytes out(3, 15);
  out.key("u8", GgufType::kU8).number<uint8_t>(200);
  out.key("i8", GgufType::kI8).number<int8_t>(-3);
  out.key("u16", GgufType::kU16).number<uint16_t>(60000);
  out.key("i16", GgufType::kI16).number<int16_t>(-30000);
  out.key("u32", GgufType::kU32).u32(4000000000U);
  out.key("i32", GgufType::kI32).number<int32_t>(-5);
  out.key("f32", GgufType::kF32).number(1e-5F);
  out.key("bool", GgufType::kBool).number<uint8_t>(1);
  out.key("string", GgufType::kString).string("text");
  out.key("u64", GgufType::kU64).u64(UINT64_MAX);
  out.key("i64", GgufType::kI64).number<int64_t>(INT64_MIN);
  out.key("f64", GgufType::kF64).number(0.1);
  out.key("strings", GgufType::kArray).array(GgufType::kString, 3).string("a").string("").string("ccc");
  out.key("floats", GgufType::kArray).array(GgufType::kF32, 2).number(0.5F).number(-1.0F);
  out.key("nested", GgufType::kArray).array(GgufType::kArray, 2);
  out.array(GgufType::kI16, 1).number<int16_t>(7).array(GgufType::kString, 1).string("x");
  out.tensor("b", {32, 2}, 8, 0);     // Q8_0: 2 rows of 34 bytes
  out.tensor("a", {4, 3, 2}, 0, 96);  // F32: 96 bytes
  out.tensor("odd", {256}, 10, 192);  // Q2_K, not read: 84 bytes
  return out.data(276);
}

TEST(Gguf, ReadsEveryTypeOfValue) {
  const Gguf file = Gguf::open(stored(sample().text()));
  EXPECT_EQ(file.integer("u8", 0, 255), 200);
  EXPECT_EQ(file.integer("i8", -128, 127), -3);
  EXPECT_EQ(file.integer("u16", 0, 65535), 60000);
  EXPECT_EQ(file.integer("i16", -40000, 0), -30000);
  EXPECT_EQ(file.integer("u32", 0, UINT32_MAX), 4000000000);
  EXPECT_EQ(file.integer("i32", -10, 0), -5);
  EXPECT_EQ(file.integer("u64", 0, INT64_MAX), INT64_MAX);  // as far as an int64 goes
  EXPECT_EQ(file.integer("i64", INT64_MIN, 0), INT64_MIN);
  EXPECT_EQ(file.number("f32"), 1e-5);
  EXPECT_EQ(file.number("f64"), 0.1);
  EXPECT_EQ(file.number("i32"), -5.0);
  EXPECT_TRUE(file.boolean("bool"));
  EXPECT_EQ(file.string("string"), "text");
  EXPECT_THAT(file.strings("strings"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(file.floats("floats"), ElementsAre(0.5F, -1.0F));
  EXPECT_TRUE(file.is_array("nested"));
  EXPECT_FALSE(file.is_array("u8"));
  EXPECT_EQ(file.keys().size(), 15U);
  EXPECT_EQ(file.integer_or("absent", 3, 0, 9), 3);
  EXPECT_EQ(file.string_or("absent", "x"), "x");
}

TEST(Gguf, NamesTheKeyAtFault) {
  const Gguf file = Gguf::open(stored(sample().text()));
  EXPECT_THAT(error_of([&] { file.integer("absent", 0, 1); }), HasSubstr("key 'absent': missing"));
  EXPECT_THAT(error_of([&] { file.integer("u8", 0, 100); }),
              HasSubstr("key 'u8': 200 is out of range [0, 100]"));
  EXPECT_THAT(error_of([&] { file.integer("f32", 0, 1); }), HasSubstr("an integer was expected, not f32"));
  EXPECT_THAT(error_of([&] { file.string("u8"); }), HasSubstr("a string was expected, not u8"));
  EXPECT_THAT(error_of([&] { file.strings("floats"); }), HasSubstr("strings were expected, not f32"));
  EXPECT_THAT(error_of([&] { file.floats("strings"); }), HasSubstr("not a string"));
  EXPECT_THAT(error_of([&] { file.integers("floats"); }), HasSubstr("integers were expected"));
  EXPECT_THAT(error_of([&] { file.integers("u8"); }), HasSubstr("an array was expected, not u8"));
  EXPECT_THAT(error_of([&] { file.boolean("string"); }), HasSubstr("a boolean was expected"));
  EXPECT_THAT(error_of([&] { file.number("strings"); }), HasSubstr("a number was expected, not an array"));
}

TEST(Gguf, PlacesTensors) {
  const Bytes bytes = sample();
  const Gguf file = Gguf::open(stored(bytes.text()));
  EXPECT_EQ(file.tensors().size(), 3U);
  const GgufTensor& a = file.at("a");
  EXPECT_THAT(a.shape, ElementsAre(2, 3, 4));
  EXPECT_EQ(a.bytes, 96U);
  EXPECT_EQ(a.row_values(), 4);
  EXPECT_EQ(std::to_integer<int>(a.data[0]), 96);
  const GgufTensor& b = file.at("b");
  EXPECT_THAT(b.shape, ElementsAre(2, 32));
  EXPECT_EQ(b.row_bytes(), 34U);
  EXPECT_EQ(b.bytes, 68U);
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_THAT(error_of([&] { file.at("absent"); }), HasSubstr("tensor 'absent' is missing"));
  EXPECT_THAT(error_of([&] { file.find("odd"); }),
              HasSubstr("tensor 'odd' has type Q2_K, which is not supported"));
}

TEST(Gguf, VersionTwoIsTheSame) {
  EXPECT_EQ(Gguf::open(stored(Bytes(0, 0, 2).text())).keys().size(), 0U);
  EXPECT_THAT(open_error(Bytes(0, 0, 1)), HasSubstr("at byte 4: version 1 is not supported (2, 3)"));
  EXPECT_THAT(open_error(Bytes(0, 0, 0)), HasSubstr("version 0"));
  EXPECT_THAT(open_error(Bytes(0, 0, 3U << 24)), HasSubstr("big-endian"));
  EXPECT_THAT(open_error("GGML567890123456"), HasSubstr("at byte 0: no GGUF file"));
  EXPECT_THAT(open_error("GG"), HasSubstr("only 2 bytes of the file are left"));
  EXPECT_THAT(open_error(""), HasSubstr("empty"));
}

TEST(Gguf, AlignmentIsTheFiles) {
  const auto with_alignment = [](GgufType type, uint32_t value) {
    return Bytes(1, 1).key("general.alignment", type).u32(value).tensor("a", {2}, 0, 0).data(8, 64);
  };
  EXPECT_EQ(
      std::to_integer<int>(Gguf::open(stored(with_alignment(GgufType::kU32, 64).text())).at("a").data[1]), 1);
  for (const uint32_t bad : {0U, 1U, 4U, 33U, 100U, UINT32_MAX}) {
    EXPECT_THAT(open_error(with_alignment(GgufType::kU32, bad)), HasSubstr("not a power of two")) << bad;
  }
  EXPECT_THAT(open_error(with_alignment(GgufType::kI32, 64)), HasSubstr("u32 was expected"));
  EXPECT_THAT(open_error(with_alignment(GgufType::kU32, 1U << 31)), HasSubstr("not within the 0 bytes"));
  EXPECT_THAT(open_error(Bytes(1, 0).tensor("a", {2}, 0, 8).data(64)),
              HasSubstr("tensor 'a': offset 8 is not a multiple"));
}

TEST(Gguf, HostileCountsAndLengths) {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  for (const uint64_t count : {uint64_t{5}, kHuge, UINT64_MAX}) {
    EXPECT_THAT(open_error(Bytes(count, 0)), HasSubstr("tensors, more than the rest of the file can hold"))
        << count;
    EXPECT_THAT(open_error(Bytes(0, count)), HasSubstr("keys, more than the rest of the file can hold"))
        << count;
  }
  for (const uint64_t length : {uint64_t{100}, kHuge, UINT64_MAX, UINT64_MAX - 7}) {
    EXPECT_THAT(open_error(Bytes(0, 1).u64(length).raw("key...........")), HasSubstr("a key of")) << length;
    EXPECT_THAT(open_error(Bytes(0, 1).key("k", GgufType::kString).u64(length)), HasSubstr("a string of"))
        << length;
    EXPECT_THAT(open_error(Bytes(0, 1).key("k", GgufType::kArray).array(GgufType::kF64, length)),
                HasSubstr("elements of an array, more than"))
        << length;
    EXPECT_THAT(open_error(Bytes(0, 1).key("k", GgufType::kArray).array(GgufType::kString, length)),
                HasSubstr("elements of an array, more than"))
        << length;
    EXPECT_THAT(open_error(Bytes(1, 0).u64(length).raw("name................")),
                HasSubstr("a tensor's name of"))
        << length;
  }
  EXPECT_THAT(open_error(Bytes(0, 1).key("k", GgufType::kArray).array(GgufType::kString, 1).u64(kHuge)),
              HasSubstr("a string of"));
}

TEST(Gguf, BadValues) {
  EXPECT_THAT(open_error(Bytes(0, 1).string("k").u32(13).u64(0)), HasSubstr("13 is not a type of value"));
  EXPECT_THAT(open_error(Bytes(0, 1).string("k").u32(UINT32_MAX).u64(0)),
              HasSubstr("is not a type of value"));
  EXPECT_THAT(open_error(Bytes(0, 1).key("k", GgufType::kArray).u32(99).u64(0)),
              HasSubstr("99 is not a type"));
  EXPECT_THAT(open_error(Bytes(0, 1).key("k", GgufType::kBool).number<uint8_t>(2)),
              HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(open_error(Bytes(0, 1).key("", GgufType::kU32).u32(2)), HasSubstr("an empty key"));
  EXPECT_THAT(open_error(Bytes(0, 2).key("a\nb", GgufType::kU32).u32(2).key("a\nb", GgufType::kU32).u32(2)),
              HasSubstr("at byte 43: key 'a?b' occurs twice"));
  Bytes deep(0, 1);
  deep.key("k", GgufType::kArray);
  for (int i = 0; i < 1000; ++i) deep.array(GgufType::kArray, 1);
  EXPECT_THAT(open_error(deep.array(GgufType::kU8, 0)), HasSubstr("arrays are nested too deeply"));
}

TEST(Gguf, BadTensors) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t bytes) {
    return open_error(Bytes(1, 0).tensor("t", dims, type, offset).data(bytes));
  };
  EXPECT_EQ(one({}, 0, 0, 4), "no error");  // a scalar
  EXPECT_EQ(one({0, 7}, 0, 0, 0), "no error");
  EXPECT_THAT(one({1, 1, 1, 1, 1}, 0, 0, 4), HasSubstr("tensor 't': 5 dimensions, more than 4"));
  EXPECT_THAT(open_error(Bytes(1, 0).string("t").u32(UINT32_MAX).u64(1).u64(1).u64(1)),
              HasSubstr("4294967295 dimensions"));
  EXPECT_THAT(one({uint64_t{1} << 63}, 0, 0, 4), HasSubstr("a dimension is not a valid size"));
  EXPECT_THAT(one({1U << 31, 1U << 31, 1U << 31}, 0, 0, 4), HasSubstr("too large"));
  EXPECT_THAT(one({uint64_t{1} << 62}, 0, 0, 4), HasSubstr("too large"));
  EXPECT_THAT(one({uint64_t{1} << 62}, 24, 0, 4), HasSubstr("not within"));
  EXPECT_THAT(one({33}, 8, 0, 68), HasSubstr("rows of 33 values, but Q8_0 has blocks of 32"));
  EXPECT_THAT(one({2, 32}, 8, 0, 68), HasSubstr("rows of 2 values"));
  EXPECT_THAT(one({}, 8, 0, 68), HasSubstr("rows of 1 values"));
  EXPECT_THAT(one({2}, 4, 0, 8), HasSubstr("type 4 is not known"));
  EXPECT_THAT(one({2}, 0xffffffff, 0, 8), HasSubstr("is not known"));
  EXPECT_THAT(one({2}, 0, 0, 7), HasSubstr("8 bytes at offset 0 are not within the 7 bytes of data"));
  EXPECT_THAT(one({2}, 0, 32, 39), HasSubstr("not within"));
  EXPECT_THAT(one({2}, 0, uint64_t{1} << 62, 39), HasSubstr("not within"));
  EXPECT_THAT(one({2}, 0, UINT64_MAX - 31, 39), HasSubstr("not within"));
  EXPECT_THAT(open_error(Bytes(2, 0).tensor("a", {9}, 0, 0).tensor("b", {9}, 0, 32).data(68)),
              HasSubstr("at byte 128: tensors 'a' and 'b' overlap"));
  EXPECT_THAT(open_error(Bytes(2, 0).tensor("b", {9}, 0, 0).tensor("a", {2}, 0, 0).data(68)),
              HasSubstr("overlap"));
  EXPECT_THAT(open_error(Bytes(2, 0).tensor("a", {2}, 0, 0).tensor("a", {2}, 0, 32).data(68)),
              HasSubstr("at byte 57: tensor 'a' occurs twice"));
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string bytes = sample().text();
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_NE(open_error(bytes.substr(0, size)), "no error") << size << " of " << bytes.size() << " bytes";
  }
  EXPECT_EQ(open_error(bytes), "no error");
}

// Whatever bytes the header has, the file opens with views inside it or gives an Error.
TEST(Gguf, MutatedFilesNeverCrash) {
  const std::string good = sample().text();
  SplitMix64 rng(9);
  int opened = 0;
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (uint64_t edits = 1 + rng.below(3); edits > 0; --edits) {
      const size_t at = rng.below(std::min<size_t>(bytes.size(), good.size() - 276));
      switch (rng.below(4)) {
        case 0:
          bytes[at] = static_cast<char>(rng.next());
          break;
        case 1:
          bytes[at] = static_cast<char>(rng.below(2) == 0 ? 0xff : 0);
          break;
        case 2:
          bytes[at] = static_cast<char>(bytes[at] + 1);
          break;
        default:
          bytes.resize(1 + rng.below(bytes.size()));
      }
    }
    try {
      const Gguf file = Gguf::open(stored(bytes));
      unsigned sum = 0;
      for (const auto& [name, tensor] : file.tensors()) {
        ASSERT_LE(tensor.bytes, bytes.size());
        for (size_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<unsigned>(tensor.data[i]);
      }
      for (const std::string_view key : file.keys()) {
        for (const auto& get : std::initializer_list<std::function<void()>>{
                 [&] { file.strings(key); }, [&] { file.integers(key); }, [&] { file.floats(key); },
                 [&] { file.string(key); }, [&] { file.number(key); }, [&] { file.boolean(key); }}) {
          try {
            get();
          } catch (const Error&) {
          }
        }
      }
      opened += sum < UINT32_MAX ? 1 : 0;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_GT(refused, 1000);
}

TEST(GgufWriter, WritesWhatIsReadBack) {
  const auto path = test::temp_dir() / "written.gguf";
  GgufMetadata metadata;
  metadata.add("text", "a string");
  metadata.add("number", uint32_t{7});
  metadata.add("real", 0.25F);
  metadata.add("truth", true);
  metadata.add("texts", std::vector<std::string>{"x", "yy"});
  metadata.add("reals", std::vector<float>{1.5F});
  metadata.add("kinds", std::vector<int32_t>{3, -1});
  const std::vector<float> first = {1.0F, 2.0F, 3.0F};
  std::vector<std::byte> second(34, std::byte{5});
  {
    GgufWriter writer(path, metadata,
                      {{"a", find_ggml_type(kGgmlF32), {3}},
                       {"none", find_ggml_type(kGgmlF16), {0, 4}},
                       {"b", find_ggml_type(kGgmlQ8_0), {1, 32}}});
    writer.append(std::as_bytes(std::span(first).first(1)));
    writer.append(std::as_bytes(std::span(first).subspan(1)));
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.append(second);
    EXPECT_THAT(error_of([&] { writer.append(second); }), HasSubstr("more data"));
    writer.finish();
  }
  const Gguf file = Gguf::open(path);
  EXPECT_EQ(file.string("text"), "a string");
  EXPECT_EQ(file.integer("number", 0, 10), 7);
  EXPECT_EQ(file.number("real"), 0.25);
  EXPECT_TRUE(file.boolean("truth"));
  EXPECT_THAT(file.strings("texts"), ElementsAre("x", "yy"));
  EXPECT_THAT(file.floats("reals"), ElementsAre(1.5F));
  EXPECT_THAT(file.integers("kinds"), ElementsAre(3, -1));
  EXPECT_EQ(std::memcmp(file.at("a").data, first.data(), 12), 0);
  EXPECT_EQ(std::memcmp(file.at("b").data, second.data(), 34), 0);
  EXPECT_THAT(file.at("b").shape, ElementsAre(1, 32));
}

TEST(GgufWriter, LeavesNothingUnfinished) {
  const auto path = test::temp_dir() / "half.gguf";
  {
    GgufWriter writer(path, {}, {{"a", find_ggml_type(kGgmlF32), {3}}});
    EXPECT_THAT(error_of([&] { writer.finish(); }), HasSubstr("0 of the 12 bytes"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(path.parent_path()));
}

TEST(Gguf, OpensOtherPeoplesFiles) {
  QUIRE_NEEDS_DATA("gguf-llama-tiny-random");
  const auto dir = test::data_dir() / "gguf-llama-tiny-random";
  const Gguf file = Gguf::open(dir / "llama-2-tiny-random.gguf");
  EXPECT_TRUE(is_gguf_file(file.path()));
  EXPECT_FALSE(is_gguf_file(dir / "SOURCE.md"));
  EXPECT_FALSE(is_gguf_file(dir));
  EXPECT_EQ(file.tensors().size(), 12U);
  EXPECT_EQ(file.at("token_embd.weight").type->name, "F16");
  EXPECT_THAT(file.at("token_embd.weight").shape, ElementsAre(32000, 8));
  EXPECT_EQ(file.number("llama.attention.layer_norm_rms_epsilon"), 1e-5);
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.size(), 32000U);
  EXPECT_EQ(tokens[3], "<0x00>");
}

}  // namespace
}  // namespace quire::formats
