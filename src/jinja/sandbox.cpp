#include "jinja/sandbox.h"

#include <algorithm>

namespace quire::jinja {
namespace {

constexpr size_t kFirstBlock = size_t{16} << 10;
constexpr size_t kBlock = size_t{256} << 10;
constexpr size_t kLong = 1024;  // a string that concat gives room to grow

}  // namespace

void fail(std::string message) { throw Fault{.message = std::move(message)}; }

void Sandbox::fail_steps() { fail("the template needs too many steps"); }
void Sandbox::fail_string() { fail("the template creates a string that is too long"); }
void Sandbox::fail_depth() { fail("the template nests too deeply"); }

std::unique_ptr<std::byte[]> Sandbox::block(size_t bytes) {
  if (bytes > limits_.max_memory_bytes - bytes_) fail("the template needs too much memory");
  bytes_ += bytes;
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

void* Sandbox::allocate(size_t bytes) {
  bytes = (bytes + 15) & ~size_t{15};
  if (bytes > objects_.left) {
    const size_t size = std::max(bytes, blocks_.size() < 2 ? kFirstBlock : kBlock);
    blocks_.push_back(block(size));
    if (bytes > kBlock / 4) return blocks_.back().get();  // the block in use keeps its rest
    objects_ = {blocks_.back().get(), size};
  }
  void* out = objects_.next;
  objects_.next += bytes;
  objects_.left -= bytes;
  return out;
}

char* Sandbox::allocate_text(size_t bytes) {
  if (bytes > text_.left) {
    const size_t size = std::max(bytes, blocks_.size() < 2 ? kFirstBlock : kBlock);
    blocks_.push_back(block(size));
    text_ = {blocks_.back().get(), size};
  }
  std::byte* out = text_.next;
  text_.next += bytes;
  text_.left -= bytes;
  return reinterpret_cast<char*>(out);
}

std::string_view Sandbox::copy(std::string_view text) {
  need_string(text.size());
  if (text.empty()) return {};
  char* out = allocate_text(text.size());
  std::memcpy(out, text.data(), text.size());
  return {out, text.size()};
}

std::string_view Sandbox::concat(std::string_view left, std::string_view right) {
  if (left.empty()) return right;
  if (right.empty()) return left;
  const size_t size = left.size() + right.size();
  limit_string(size);
  const auto extend = [&](Region& region) {
    if (reinterpret_cast<const std::byte*>(left.data() + left.size()) != region.next) return false;
    if (right.size() > region.left) return false;
    work(right.size());
    std::memcpy(region.next, right.data(), right.size());
    region.next += right.size();
    region.left -= right.size();
    return true;
  };
  if (extend(text_) || std::any_of(growing_.begin(), growing_.end(), extend)) return {left.data(), size};
  work(size);
  char* out = nullptr;
  if (size < kLong) {
    out = allocate_text(size);
  } else {
    blocks_.push_back(block(2 * size));
    out = reinterpret_cast<char*>(blocks_.back().get());
    growing_[next_growing_++ % growing_.size()] = {blocks_.back().get() + size, size};
  }
  std::memcpy(out, left.data(), left.size());
  std::memcpy(out + left.size(), right.data(), right.size());
  return {out, size};
}

}  // namespace quire::jinja
