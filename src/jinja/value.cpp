#include "jinja/value.h"

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "jinja/ops.h"

namespace quire::jinja {
namespace {

constexpr size_t kSmallDict = 8;

uint64_t hash_of(Sandbox& sandbox, const Value& key) {
  sandbox.step();
  switch (key.kind()) {
    case Kind::kString:
      sandbox.work(key.as_string().size());
      return std::hash<std::string_view>{}(key.as_string());
    case Kind::kFloat: {
      const double value = key.as_float();
      if (std::floor(value) != value || std::abs(value) > 1e18) return std::hash<double>{}(value);
      return std::hash<int64_t>{}(static_cast<int64_t>(value));
    }
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<int64_t>{}(static_cast<int64_t>(key.as_int()));
    case Kind::kTuple: {
      const Sandbox::Level level(sandbox);
      uint64_t hash = 0x9e3779b97f4a7c15U;
      for (const Value& item : key.items()) hash = hash * 31 + hash_of(sandbox, item);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      fail(fmt::format("unhashable type: '{}'", type_name(key)));
    case Kind::kNone:
    case Kind::kUndefined:
      return static_cast<uint64_t>(key.kind());
    default:
      return std::hash<const void*>{}(key.address());
  }
}

}  // namespace

size_t Range::size() const {
  const auto low = static_cast<__int128>(start);
  const auto high = static_cast<__int128>(stop);
  const __int128 count = step > 0 ? (high - low + step - 1) / step : (low - high - step - 1) / -step;
  return count > 0 ? static_cast<size_t>(count) : 0;
}

size_t Dict::locate(Sandbox& sandbox, const Value& key, uint64_t hash) const {
  if (slots_.empty()) {
    for (size_t i = 0; i < size_; ++i) {
      if (equal(sandbox, entries_[i].key, key)) return i;
    }
    return size_;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    sandbox.step();
    if (equal(sandbox, entries_[slots_[slot] - 1].key, key)) return slots_[slot] - 1;
  }
  return size_;
}

void Dict::index(size_t entry, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = static_cast<uint32_t>(entry + 1);
}

const Value* Dict::find(Sandbox& sandbox, const Value& key) const {
  const uint64_t hash = hash_of(sandbox, key);
  const size_t at = locate(sandbox, key, hash);
  return at == size_ ? nullptr : &entries_[at].value;
}

void Dict::set(Sandbox& sandbox, const Value& key, const Value& value) {
  const uint64_t hash = hash_of(sandbox, key);
  const size_t at = locate(sandbox, key, hash);
  if (at < size_) {
    entries_[at].value = value;
    return;
  }
  if (size_ == entries_.size()) {
    const std::span<Entry> wider = sandbox.array<Entry>(size_ == 0 ? 4 : 2 * size_);
    std::copy(entries_.begin(), entries_.end(), wider.begin());
    entries_ = wider;
  }
  entries_[size_] = {key, value};
  ++size_;
  if (size_ <= kSmallDict) return;
  if (2 * size_ > slots_.size()) {
    slots_ = sandbox.array<uint32_t>(slots_.empty() ? 4 * kSmallDict : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) index(i, hash_of(sandbox, entries_[i].key));
  } else {
    index(size_ - 1, hash);
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      switch (value.as<View>().part) {
        case View::Part::kKeys:
          return "dict_keys";
        case View::Part::kValues:
          return "dict_values";
        case View::Part::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kBlocks:
      return "TemplateReference";
    case Kind::kIterator:
      return value.as<Iterator>().type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

std::string undefined_message(const Value& value) {
  const Missing* missing = value.missing();
  if (missing == nullptr) return "the value is undefined";
  if (!missing->hint.empty()) return std::string(missing->hint);
  if (missing->object_type.empty()) return fmt::format("'{}' is undefined", missing->name);
  const std::string object =
      missing->object_type == "NoneType" ? "None" : fmt::format("{} object", missing->object_type);
  if (missing->is_element) return fmt::format("{} has no element {}", object, missing->name);
  return fmt::format("'{}' has no attribute '{}'", object, missing->name);
}

void fail_undefined(const Value& value) { fail(undefined_message(value)); }

}  // namespace quire::jinja
