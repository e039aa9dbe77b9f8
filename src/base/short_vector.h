#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <boost/container/small_vector.hpp>

namespace quire {

/// A vector that stores up to N elements without an allocation, for the many lists of one or two elements.
template <typename T, size_t N>
class ShortVector : public boost::container::small_vector<T, N> {
 public:
  using boost::container::small_vector<T, N>::small_vector;
  ShortVector() = default;
  ShortVector(const std::vector<T>& other)  // NOLINT(google-explicit-constructor): a list is a list
      : boost::container::small_vector<T, N>(other.begin(), other.end()) {}

  void append(std::span<const T> items) {
    if (items.size() == 1) {
      this->push_back(items.front());  // common enough to be worth a branch
    } else if (!items.empty()) {
      this->insert(this->end(), items.begin(), items.end());
    }
  }
};

}  // namespace quire
