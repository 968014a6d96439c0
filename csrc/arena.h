// A grow-only array of trivial values that does not initialise what it grows by.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>
#include <type_traits>

namespace loader {

template <typename T>
class Arena {
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved by realloc");

 public:
  Arena() = default;
  Arena(Arena&& other) noexcept : data_(other.data_), size_(other.size_), capacity_(other.capacity_) {
    other.data_ = nullptr;
    other.size_ = other.capacity_ = 0;
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena& operator=(Arena&&) = delete;
  ~Arena() { std::free(data_); }

  // Room for `count` more elements, to be written by the caller; earlier pointers become invalid.
  T* extend(size_t count) {
    if (size_ + count > capacity_) grow(size_ + count);
    T* const begin = data_ + size_;
    size_ += count;
    return begin;
  }
  void push_back(const T& value) {
    const T copy = value;  // `value` may lie in this array
    *extend(1) = copy;
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  void grow(size_t needed) {
    const size_t capacity = std::max({needed, capacity_ + capacity_ / 2, size_t{64}});
    void* const data = std::realloc(static_cast<void*>(data_), capacity * sizeof(T));
    if (!data) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
    capacity_ = capacity;
  }

  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace loader
