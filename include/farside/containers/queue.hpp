// farside::queue: as std::queue, with far elements in chunks. The middle of a long queue is evicted, and prefetched
// before it is used. C++20.
//
//   farside::queue<Job> jobs;
//   jobs.push(job);
//   Job next = jobs.front();  // a copy
//   jobs.pop();
//
// T is trivially copyable. Complexity: push, pop, front and back O(1), at most one fetch; pop fetches nothing. Near
// memory: 8 bytes for each chunk. Thread-safety: as std::queue. Exceptions: std::bad_alloc from push and emplace, which
// then have no effect. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_QUEUE_HPP
#define FARSIDE_CONTAINERS_QUEUE_HPP

#include <farside/containers/detail.hpp>

#include <deque>

namespace farside {

template <typename T, size_t ElementsPerObject = 0>
class queue {
  static_assert(detail::check_element<T>());

 public:
  using value_type = T;
  using size_type = size_t;
  static constexpr size_t kElementsPerObject = detail::elements_of<T, ElementsPerObject>;

  queue() = default;
  queue(queue&& other) noexcept { swap(other); }
  queue& operator=(queue&& other) noexcept {
    if (this == &other) return *this;
    clear();
    swap(other);
    return *this;
  }

  size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  void push(const T& value) { emplace(value); }
  template <typename... Arguments>
  void emplace(Arguments&&... arguments) {
    deref_scope scope;
    if (head_ + size_ == chunks_.size() * kElementsPerObject) add_chunk();
    ::new (static_cast<void*>(&element<true>(size_))) T(std::forward<Arguments>(arguments)...);
    size_++;
  }
  void pop() {
    size_--;
    head_++;
    if (size_ == 0) head_ = 0;  // the chunk is reused from its first element
    else if (head_ == kElementsPerObject) drop_chunk();
  }

  // Copies; with a scope, the element itself. The queue must not be empty.
  T front() const {
    deref_scope scope;
    return front(scope);
  }
  T back() const {
    deref_scope scope;
    return back(scope);
  }
  const T& front(const deref_scope&) const { return element<false>(0); }
  const T& back(const deref_scope&) const { return element<false>(size_ - 1); }
  T& front_mut(const deref_scope&) { return element<true>(0); }
  T& back_mut(const deref_scope&) { return element<true>(size_ - 1); }

  void clear() {
    chunks_.clear();
    head_ = size_ = first_ = 0;
  }
  void swap(queue& other) noexcept {
    chunks_.swap(other.chunks_);
    std::swap(head_, other.head_);
    std::swap(size_, other.size_);
    std::swap(first_, other.first_);
  }
  friend void swap(queue& a, queue& b) noexcept { a.swap(b); }

 private:
  using object = detail::chunk<T, kElementsPerObject>;
  using owner = unique_ptr<object>;

  // The chunks in the form that note_miss needs: numbered since the queue was created, so that popping does not
  // renumber.
  struct numbered {
    static constexpr size_t kObjectBytes = sizeof(object);
    const queue& self;
    size_t size() const { return self.first_ + self.chunks_.size(); }
    void prefetch(size_t first, size_t count) const {
      for (size_t i = std::max(first, self.first_); i < first + count && i < size(); i++)
        farside::prefetch(&self.chunks_[i - self.first_], 1);
    }
  };

  template <bool write>
  T& element(size_t i) const {
    size_t at = (head_ + i) / kElementsPerObject;
    auto missed = [&] { detail::note_miss(this, numbered{*this}, first_ + at); };
    return detail::reach<write, false>(chunks_[at], missed)->items[(head_ + i) % kElementsPerObject];
  }
  void add_chunk() {
    chunks_.emplace_back();
    try {
      detail::make_in(chunks_.back(), 0);
    } catch (...) {
      chunks_.pop_back();
      throw;
    }
  }
  void drop_chunk() {
    chunks_.pop_front();
    first_++;
    head_ = 0;
  }

  std::deque<owner> chunks_;  // a deque does not move its elements
  size_t head_ = 0;           // index of the first element in the first chunk
  size_t size_ = 0;
  size_t first_ = 0;  // number of the first chunk
};

}  // namespace farside
#endif
