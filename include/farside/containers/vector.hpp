// farside::vector: as std::vector, with far elements in chunks. C++20.
//
//   farside::vector<uint64_t> v;
//   v.push_back(1);
//   uint64_t sum = 0;
//   v.for_each([&](uint64_t x) { sum += x; });  // near: within 8 % of std::vector
//   {
//     farside::deref_scope scope;
//     v.get_mut(0, scope)++;
//   }
//   farside::vector<Record, 1> records;  // ElementsPerObject 1: each element is fetched alone
//
// T is trivially copyable. ElementsPerObject: as for farside::array. Growing moves, copies and fetches no element, so
// references that a scope protects stay valid. insert and erase in the middle move the elements that follow.
// Complexity: access, push_back and pop_back O(1), at most one fetch; insert and erase O(elements behind). Swap and
// moves: O(1), no fetch. clear and destruction: O(chunks), no fetch. Near memory: 8 bytes for each object, in blocks of
// 512 bytes (4 KiB with one element for each object). Exceptions: std::bad_alloc when far memory is full; push_back,
// emplace_back and resize then have no effect. Thread-safety: as std::vector. Iterators: positions.hpp; valid while
// their index is at most the size. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_VECTOR_HPP
#define FARSIDE_CONTAINERS_VECTOR_HPP

#include <farside/containers/sequence.hpp>

#include <initializer_list>

namespace farside {

template <typename T, size_t ElementsPerObject = 0>
class vector : public detail::sequence<T, ElementsPerObject> {
  using base = detail::sequence<T, ElementsPerObject>;
  using base::chunks_, base::size_;

 public:
  using base::kElementsPerObject;
  using typename base::const_iterator, typename base::iterator;

  vector() = default;
  explicit vector(size_t size) { resize(size); }
  vector(size_t size, const T& value) { resize(size, value); }
  explicit vector(const structure& in) { chunks_.put_in(in); }
  vector(std::initializer_list<T> values) { append(values); }
  template <std::input_iterator It>
  vector(It first, It last) {
    append(std::ranges::subrange(first, last));
  }
  vector(vector&&) noexcept = default;
  vector& operator=(vector&&) noexcept = default;

  size_t capacity() const { return chunks_.size() * kElementsPerObject; }
  // Takes far memory for this many elements now.
  void reserve(size_t size) { this->make_chunks(size); }
  void shrink_to_fit() { chunks_.truncate(chunks_for(size_)); }
  void clear() {
    chunks_.clear();
    size_ = 0;
  }
  void swap(vector& other) noexcept {
    chunks_.swap(other.chunks_);
    std::swap(size_, other.size_);
  }
  friend void swap(vector& a, vector& b) noexcept { a.swap(b); }

  void push_back(const T& value) { emplace_back(value); }
  template <typename... Arguments>
  void emplace_back(Arguments&&... arguments) {
    deref_scope scope;
    if (size_ == capacity()) chunks_.push();
    ::new (static_cast<void*>(&this->get_mut(size_, scope))) T(std::forward<Arguments>(arguments)...);
    size_++;
  }
  // Keeps one empty chunk, so that a size that alternates around the end of a chunk allocates nothing.
  void pop_back() {
    size_--;
    if (chunks_.size() > chunks_for(size_) + 1) chunks_.pop();
  }
  void resize(size_t size) { resize(size, T{}); }
  void resize(size_t size, const T& value) {
    size_t before = size_;
    T copy = value;
    resize_for_overwrite(size);
    if (before < size)
      this->for_each_chunk_mut(before, size, [&](std::span<T> run) { std::fill(run.begin(), run.end(), copy); });
  }
  // As resize; new elements have undefined content.
  void resize_for_overwrite(size_t size) {
    if (size > size_) grow(size);
    else chunks_.truncate(chunks_for(size));
    size_ = size;
  }

  // Appends the elements of a range, which must not be part of this vector.
  template <typename Range>
  void append(Range&& range) {
    if constexpr (std::ranges::sized_range<Range>) {
      insert(this->end(), std::ranges::begin(range), std::ranges::end(range));
    } else {
      for (auto&& value : range) emplace_back(value);
    }
  }

  // Insert in front of `where`; return an iterator to the first new element.
  iterator insert(const_iterator where, const T& value) {
    T copy = value;
    return insert(where, 1, copy);
  }
  template <typename... Arguments>
  iterator emplace(const_iterator where, Arguments&&... arguments) {
    return insert(where, T(std::forward<Arguments>(arguments)...));
  }
  iterator insert(const_iterator where, size_t count, const T& value) {
    T copy = value;
    size_t at = open_gap(where.index(), count);
    this->for_each_chunk_mut(at, at + count, [&](std::span<T> run) { std::fill(run.begin(), run.end(), copy); });
    return this->begin() + static_cast<std::ptrdiff_t>(at);
  }
  template <std::input_iterator It, std::sized_sentinel_for<It> End>
  iterator insert(const_iterator where, It first, End last) {
    auto count = static_cast<size_t>(last - first);
    size_t at = open_gap(where.index(), count);
    this->for_each_chunk_mut(at, at + count, [&](std::span<T> run) {
      for (T& item : run) item = static_cast<T>(*first), ++first;
    });
    return this->begin() + static_cast<std::ptrdiff_t>(at);
  }
  iterator insert(const_iterator where, std::initializer_list<T> values) {
    return insert(where, values.begin(), values.end());
  }

  // Return an iterator to the element behind the last one that was erased.
  iterator erase(const_iterator where) { return erase(where, where + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    size_t from = last.index(), to = first.index();
    if (from != to) {
      this->shift(from, to, size_ - from);
      size_ -= from - to;
      chunks_.truncate(std::min(chunks_.size(), chunks_for(size_) + 1));
    }
    return this->begin() + static_cast<std::ptrdiff_t>(to);
  }

 private:
  static constexpr size_t chunks_for(size_t size) { return (size + kElementsPerObject - 1) / kElementsPerObject; }

  void grow(size_t size) {
    size_t before = chunks_.size();
    try {
      this->make_chunks(size);
    } catch (...) {
      chunks_.truncate(before);
      throw;
    }
  }
  size_t open_gap(size_t at, size_t count) {
    grow(size_ + count);
    this->shift(at, at + count, size_ - at);
    size_ += count;
    return at;
  }
};

// Removes the elements for which f(const T&) is true, and returns how many. O(n), one pass.
template <typename T, size_t E, typename F>
size_t erase_if(vector<T, E>& v, F f) {
  size_t kept = 0, i = 0, before = v.size();
  for (; i < before; i++) {
    deref_scope scope;
    const T& item = v.get(i, scope);
    if (f(item)) continue;
    if (kept != i) v.get_mut(kept, scope) = item;
    kept++;
  }
  v.resize_for_overwrite(kept);
  return before - kept;
}

}  // namespace farside
#endif
