// farside::array<T, N> and array<T>: as std::array, the second with its size given at run time; the elements are far.
//
//   farside::array<Pixel> image(width * height);
//   farside::array<Record, 1000000, 1> records;        // each a far object of its own: random access of larger
//   elements image.for_each_mut([](Pixel& p) { p.red = 0; });
//
// ElementsPerObject: how many elements come and go together. By default as many as make a chunk a little smaller than a
// page, for use in order; 1 for random access of elements from a cache line up. See docs/guide/containers.md.
// Elements begin as T{}. All memory is taken at construction (std::bad_alloc), none later.
// Complexity: access O(1), at most one fetch; construction O(n). Near memory: 8 bytes a chunk, in blocks of 512 bytes
// (4 KiB with one element an object).
// Thread-safety: as std::array. Iterators: positions.hpp.
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
  // A moved-from array has no elements.
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
