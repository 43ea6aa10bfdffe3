// What farside::array and farside::vector share: elements by index, in chunks of ElementsPerObject. Each chunk is a far
// object; its owner is in a near spine. Its members are those of the two classes; programs do not name it.
//
//   element i:  spine[i / ElementsPerObject]  ->  chunk, far  ->  items[i % ElementsPerObject]
//
// Complexity: access by index O(1), at most one fetch. Walks by index or iterator are detected from their misses,
// forwards, backwards and by any stride, and the next chunks are requested; for_each requests them from the start.
// Thread-safety: as std::vector.
#ifndef FARSIDE_CONTAINERS_SEQUENCE_HPP
#define FARSIDE_CONTAINERS_SEQUENCE_HPP

#include <farside/containers/detail.hpp>
#include <farside/containers/positions.hpp>

#include <cstring>
#include <span>
#include <stdexcept>

namespace farside::detail {

template <typename T, size_t requested>
class sequence : public reversible<sequence<T, requested>, position<sequence<T, requested>>,
                                   position<const sequence<T, requested>>> {
  static_assert(check_element<T>());

 public:
  using value_type = T;
  using iterator = position<sequence>;
  using const_iterator = position<const sequence>;
  static constexpr size_t kElementsPerObject = elements_of<T, requested>;

  size_t size() const { return size_; }

  // ---- The element itself, valid until the scope ends. non_temporal: not used again soon ----
  template <bool non_temporal = false>
  const T& get(size_t i, const deref_scope&) const {
    return chunk_of<false, non_temporal>(i).items[i % kElementsPerObject];
  }
  template <bool non_temporal = false>
  T& get_mut(size_t i, const deref_scope&) {
    return chunk_of<true, non_temporal>(i).items[i % kElementsPerObject];
  }
  // The same; std::out_of_range if i is too large.
  const T& at(size_t i, const deref_scope& scope) const { return get(checked(i), scope); }
  T& at_mut(size_t i, const deref_scope& scope) { return get_mut(checked(i), scope); }
  const T& front(const deref_scope& scope) const { return get(0, scope); }
  const T& back(const deref_scope& scope) const { return get(size_ - 1, scope); }

  // ---- Copies, without a scope ----
  T load(size_t i) const {
    deref_scope scope;
    return get(i, scope);
  }
  void store(size_t i, const T& value) {
    deref_scope scope;
    get_mut(i, scope) = value;
  }
  const T operator[](size_t i) const { return load(i); }  // const, so that `v[i].x = 1` does not compile
  T at(size_t i) const { return load(checked(i)); }
  T front() const { return load(0); }
  T back() const { return load(size_ - 1); }

  // ---- Runs of elements: one scope and one deref for each chunk, prefetched ----

  // f(std::span<const T>) for each chunk of [begin, end), in order. f must not change the size of the container.
  template <bool non_temporal = false, typename F>
  void for_each_chunk(size_t begin, size_t end, F f) const {
    visit<false, non_temporal>(*this, begin, end, [&](T* items, size_t n) { f(std::span<const T>(items, n)); });
  }
  // The same with f(std::span<T>).
  template <bool non_temporal = false, typename F>
  void for_each_chunk_mut(size_t begin, size_t end, F f) {
    visit<true, non_temporal>(*this, begin, end, [&](T* items, size_t n) { f(std::span<T>(items, n)); });
  }
  template <bool non_temporal = false, typename F>
  void for_each(F f) const {
    for_each_chunk<non_temporal>(0, size_, [&](std::span<const T> run) {
      for (const T& item : run) f(item);
    });
  }
  template <bool non_temporal = false, typename F>
  void for_each_mut(F f) {
    for_each_chunk_mut<non_temporal>(0, size_, [&](std::span<T> run) {
      for (T& item : run) f(item);
    });
  }
  // Walks over the elements in pieces that are adjacent in memory. Valid while the size is the same.
  class pieces {
   public:
    explicit pieces(const sequence& of) : of_(&of) {}
    bool is_at_end() const { return at_ == of_->size_; }
    // The next piece, valid until the scope ends. fetched: it is used at once; else nothing is fetched as a rule.
    template <bool fetched>
    std::span<const T> next(const deref_scope& scope) {
      const T* first = fetched ? &of_->get(at_, scope) : of_->locate(at_, scope);
      size_t count = std::min(kElementsPerObject, of_->size_ - at_);
      at_ += count;
      return {first, count};
    }

   private:
    const sequence* of_;
    size_t at_ = 0;
  };

  // Where an element is, valid until the scope ends. Nothing is fetched as a rule.
  const T* locate(size_t i, const deref_scope&) const {
    return detail::locate(chunks_[i / kElementsPerObject])->items + i % kElementsPerObject;
  }

  // A hint: elements [begin, begin + count) will be used soon. Fetches their chunks as farside::prefetch does.
  void prefetch(size_t begin, size_t count) const {
    if (begin >= size_ || count == 0) return;
    size_t first = begin / kElementsPerObject, last = (begin + std::min(count, size_ - begin) - 1) / kElementsPerObject;
    chunks_.prefetch(first, last - first + 1);
  }
  void fill(const T& value) {
    T copy = value;
    for_each_chunk_mut(0, size_, [&](std::span<T> run) { std::fill(run.begin(), run.end(), copy); });
  }

  // ---- Iterators: see positions.hpp ----
  iterator begin() { return {*this, 0}; }
  iterator end() { return {*this, size_}; }
  const_iterator begin() const { return {*this, 0}; }
  const_iterator end() const { return {*this, size_}; }
  auto in(const deref_scope&) const {
    using scoped = scoped_position<const sequence>;
    return scoped_range<scoped>(scoped(*this, 0), scoped(*this, size_));
  }
  auto in_mut(const deref_scope&) {
    using scoped = scoped_position<sequence>;
    return scoped_range<scoped>(scoped(*this, 0), scoped(*this, size_));
  }

 protected:
  using object = chunk<T, kElementsPerObject>;
  // Small blocks of owners where there are few owners: a container takes at least one block.
  using owners = spine<object, kElementsPerObject == 1 ? 512 : 64>;

  sequence() = default;
  sequence(sequence&& other) noexcept : chunks_(std::move(other.chunks_)), size_(std::exchange(other.size_, 0)) {}
  sequence& operator=(sequence&& other) noexcept {
    if (this == &other) return *this;
    chunks_ = std::move(other.chunks_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~sequence() = default;

  size_t checked(size_t i) const {
    if (i >= size_) throw std::out_of_range("farside: an element's index is at or past the size of its container");
    return i;
  }
  // Creates chunks for this many elements, which are not initialized.
  void make_chunks(size_t elements) {
    while (chunks_.size() * kElementsPerObject < elements) chunks_.push();
  }
  // Moves `count` elements from index `from` to index `to`; the ranges may overlap.
  void shift(size_t from, size_t to, size_t count) {
    if (to <= from) return shift_down(from, to, count);
    while (count > 0) {
      size_t n =
          std::min({count, (from + count - 1) % kElementsPerObject + 1, (to + count - 1) % kElementsPerObject + 1});
      count -= n;
      shift_piece(from + count, to + count, n);
    }
  }

  owners chunks_;
  size_t size_ = 0;

 private:
  template <typename>
  friend class scoped_position;

  template <bool write, bool non_temporal>
  object& chunk_of(size_t i) const {
    size_t at = i / kElementsPerObject;
    return *reach<write, non_temporal>(chunks_[at], [&] { note_miss(this, chunks_, at); });
  }
  const T* run(size_t i, size_t* first) const {
    *first = i / kElementsPerObject * kElementsPerObject;
    return chunk_of<false, false>(i).items;
  }
  T* run(size_t i, size_t* first) {
    *first = i / kElementsPerObject * kElementsPerObject;
    return chunk_of<true, false>(i).items;
  }

  template <bool write, bool non_temporal, typename F>
  static void visit(const sequence& self, size_t begin, size_t end, F f) {
    run_ahead next((end + kElementsPerObject - 1) / kElementsPerObject);
    size_t at = begin / kElementsPerObject, skipped = begin % kElementsPerObject;
    while (begin < end) {
      deref_scope scope;
      for (size_t i = 0; i < objects_per_scope(sizeof(object)) && begin < end; i++, at++) {
        object* o = reach<write, non_temporal>(self.chunks_[at], [&] { next.missed(self.chunks_, at); });
        size_t n = std::min(kElementsPerObject - skipped, end - begin);
        f(o->items + skipped, n);
        begin += n;
        skipped = 0;
      }
    }
  }

  void shift_down(size_t from, size_t to, size_t count) {
    while (count > 0) {
      size_t n = std::min(
          {count, kElementsPerObject - from % kElementsPerObject, kElementsPerObject - to % kElementsPerObject});
      shift_piece(from, to, n);
      from += n, to += n, count -= n;
    }
  }
  void shift_piece(size_t from, size_t to, size_t count) {
    deref_scope scope;
    const T* source = &get(from, scope);
    memmove(static_cast<void*>(&get_mut(to, scope)), source, count * sizeof(T));
  }
};

}  // namespace farside::detail
#endif
