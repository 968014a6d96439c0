// Atomic reads and writes of plain arrays by several threads.
#pragma once

namespace loader {

template <typename T>
T peek(const T* at) {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}

template <typename T>
void put(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

// Whether `value` took the place of `expected`.
template <typename T>
bool replace(T* at, T expected, T value) {
  return __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

// Whether `value` is less than the number that was there.
template <typename T>
bool lower(T* at, T value) {
  T known = peek(at);
  while (value < known)
    if (__atomic_compare_exchange_n(at, &known, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return true;
  return false;
}

}  // namespace loader
