// farside::stack: as std::stack, with far elements in chunks: a farside::vector whose end is the top. C++20.
//
//   farside::stack<uint64_t> path;
//   path.push(7);
//   uint64_t last = path.top();  // a copy
//   path.pop();
//
// T is trivially copyable. Repeated pops are detected, and the chunks below are requested. Complexity: push, pop and
// top O(1), at most one fetch; pop fetches nothing. Near memory: as farside::vector. Thread-safety: as std::stack.
// Exceptions: std::bad_alloc from push and emplace, which then have no effect. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_STACK_HPP
#define FARSIDE_CONTAINERS_STACK_HPP

#include <farside/containers/vector.hpp>

namespace farside {

template <typename T, size_t ElementsPerObject = 0>
class stack {
 public:
  using value_type = T;
  using size_type = size_t;

  size_t size() const { return elements_.size(); }
  [[nodiscard]] bool empty() const { return elements_.empty(); }
  void push(const T& value) { elements_.push_back(value); }
  template <typename... Arguments>
  void emplace(Arguments&&... arguments) {
    elements_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void pop() { elements_.pop_back(); }
  // A copy; with a scope, the element itself. The stack must not be empty.
  T top() const { return elements_.back(); }
  const T& top(const deref_scope& scope) const { return elements_.back(scope); }
  T& top_mut(const deref_scope& scope) { return elements_.get_mut(size() - 1, scope); }
  void clear() { elements_.clear(); }
  void swap(stack& other) noexcept { elements_.swap(other.elements_); }
  friend void swap(stack& a, stack& b) noexcept { a.swap(b); }

 private:
  vector<T, ElementsPerObject> elements_;
};

}  // namespace farside
#endif
