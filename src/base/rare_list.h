#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace quire {

/// A list that is nearly always empty, and then takes the memory of a pointer instead of three.
template <typename T>
class RareList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;

  RareList() = default;
  RareList(std::vector<T> items) {  // NOLINT(google-explicit-constructor): a list is a list
    if (!items.empty()) write() = std::move(items);
  }
  RareList(std::initializer_list<T> items) : RareList(std::vector<T>(items)) {}
  RareList(const RareList& other) : RareList(other.read()) {}
  RareList(RareList&&) noexcept = default;
  RareList& operator=(const RareList& other) { return *this = RareList(other); }
  RareList& operator=(RareList&&) noexcept = default;
  ~RareList() = default;

  bool empty() const { return items_ == nullptr || items_->empty(); }
  size_t size() const { return read().size(); }
  const_iterator begin() const { return read().begin(); }
  const_iterator end() const { return read().end(); }
  const T& operator[](size_t i) const { return read()[i]; }
  operator const std::vector<T>&() const { return read(); }  // NOLINT(google-explicit-constructor)

  /// The items, to be changed.
  std::vector<T>& write() {
    if (items_ == nullptr) items_ = std::make_unique<std::vector<T>>();
    return *items_;
  }

 private:
  const std::vector<T>& read() const {
    static const std::vector<T> kNone;
    return items_ == nullptr ? kNone : *items_;
  }

  std::unique_ptr<std::vector<T>> items_;  // null: there are none
};

}  // namespace quire
