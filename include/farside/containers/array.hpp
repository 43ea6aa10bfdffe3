// farside::array<T, N>: as std::array, with far elements. farside::array<T>: the same with a size that is given at run
// time. C++20.
//
//   farside::array<Pixel> image(width * height);
//   image.for_each_mut([](Pixel& p) { p.red = 0; });
//   farside::array<Record, 1000000, 1> records;  // one far object for each element
//
// ElementsPerObject: how many elements form one far object and are fetched together. The default makes chunks a little
// smaller than a page, for access in order; 1 is for random access to elements of 64 bytes and more.
// T is trivially copyable. Elements begin as T{}. All far memory is taken by the constructor (std::bad_alloc).
// Complexity: access O(1), at most one fetch; construction O(n). Near memory: 8 bytes for each object, in blocks of 512
// bytes (4 KiB with one element for each object).
// Thread-safety: as std::array. Iterators: positions.hpp. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_ARRAY_HPP
#define FARSIDE_CONTAINERS_ARRAY_HPP

#include <farside/containers/sequence.hpp>

namespace farside {

inline constexpr size_t dynamic_size = static_cast<size_t>(-1);

template <typename T, size_t N = dynamic_size, size_t ElementsPerObject = 0>
class array : public detail::sequence<T, ElementsPerObject> {
  using base = detail::sequence<T, ElementsPerObject>;

 public:
  array() requires(N != dynamic_size) { make(N); }
  array() requires(N == dynamic_size) = default;
  explicit array(size_t size) requires(N == dynamic_size) { make(size); }
  array(size_t size, const T& value) requires(N == dynamic_size) {
    make_chunks_for(size);
    this->fill(value);
  }
  // A moved-from array has no elements, also where N is given.
  array(array&&) noexcept = default;
  array& operator=(array&&) noexcept = default;

  static constexpr size_t max_size() { return N; }
  void swap(array& other) noexcept {
    this->chunks_.swap(other.chunks_);
    std::swap(this->size_, other.size_);
  }
  friend void swap(array& a, array& b) noexcept { a.swap(b); }

 private:
  void make_chunks_for(size_t size) {
    this->make_chunks(size);
    this->size_ = size;
  }
  void make(size_t size) {
    make_chunks_for(size);
    this->fill(T{});
  }
};

}  // namespace farside
#endif
