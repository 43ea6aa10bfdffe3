// Owners of far objects, in the manner of std::unique_ptr and std::shared_ptr. C++17, headers only.
//
//   auto p = farside::make_unique<Point>(Point{1, 2});
//   {
//     farside::deref_scope scope;
//     p.deref_mut(scope)->x = 3;
//   }
//   Point copy = p.load();  // opens a scope itself
//
// A far object is of a trivially copyable type, or of a type that declares its far pointers, since Farside moves
// objects as bytes and has to find the owners in them:
//
//   struct Node {
//     long value;
//     farside::unique_ptr<Node> next;
//   };
//   template <>
//   struct farside::far_pointers<Node> : farside::fields<&Node::next> {};
//
// Sizes from 1 byte to many pages, alignment up to 64. An object takes its size rounded up to 16 bytes, and a header of
// 8; objects of more than 4080 bytes take whole pages and are never moved.
//
// Errors: std::bad_alloc from make_unique and make_shared when far memory is full. Thread-safety: as std::unique_ptr
// and std::shared_ptr. Several threads may dereference one owner at the same time; the program orders what they do with
// the object, and changes of the owner. Cost: deref of a near object in a scope, 10 instructions; of a far one, a
// fetch. Sources of the ideas: AIFM 4.2.1, Atlas 4.1 (docs/references.md). Guide: docs/guide/objects.md.
#ifndef FARSIDE_PTR_HPP
#define FARSIDE_PTR_HPP

#include <farside/scope.hpp>

#include <atomic>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace farside {

template <typename T>
class unique_ptr;

// Declares the far pointers in a T. Specialize it, by deriving from fields<...>, or with `none = false` and a function
// `static void visit(T&, Each)` that calls each(pointer) for every far pointer in the object.
template <typename T>
struct far_pointers {
  static constexpr bool none = true;
};

template <auto... members>
struct fields {
  static constexpr bool none = false;
  template <typename T, typename Each>
  static void visit(T& object, Each each) {
    (each(object.*members), ...);
  }
};

namespace detail {

struct access {
  template <typename Pointer>
  static uint64_t* word(Pointer& pointer) {
    return &pointer.word_;
  }
};

template <typename T, typename = void>
struct has_far_pointers : std::true_type {};
template <typename T>
struct has_far_pointers<T, std::enable_if_t<far_pointers<T>::none>> : std::false_type {};

template <typename T>
void visit_fields(void* object, void (*each)(uint64_t*, void*), void* context) {
  far_pointers<T>::visit(*static_cast<T*>(object), [&](auto& pointer) { each(access::word(pointer), context); });
}

template <typename T, typename... Arguments>
unique_ptr<T> make(unsigned options, Arguments&&... arguments);

template <typename T>
farside_object_type* type_of() {
  static_assert(std::is_object_v<T> && !std::is_array_v<T> && !std::is_const_v<T>, "a far object is a value");
  static_assert(std::is_trivially_copyable_v<T> || has_far_pointers<T>::value,
                "Farside moves far objects as bytes: make the type trivially copyable, or specialize "
                "farside::far_pointers");
  static_assert(alignof(T) <= 64, "far objects are aligned to 64 bytes at most");
  if constexpr (has_far_pointers<T>::value) {
    static farside_object_type type = {sizeof(T), alignof(T), visit_fields<T>, 0};
    return &type;
  } else {
    static farside_object_type type = {sizeof(T), alignof(T), nullptr, 0};
    return &type;
  }
}

}  // namespace detail

// The only owner of a far object; 8 bytes. Farside keeps its address: move it, never copy its bytes. Moving an owner
// while its object is far takes a table entry in near memory (24 bytes and more).
template <typename T>
class unique_ptr {
 public:
  using element_type = T;

  constexpr unique_ptr() = default;
  constexpr unique_ptr(std::nullptr_t) {}
  unique_ptr(unique_ptr&& other) noexcept { take(other); }
  unique_ptr& operator=(unique_ptr&& other) noexcept {
    if (this == &other) return *this;
    unique_ptr old(std::move(*this));  // destroyed last: `other` may be inside its object
    take(other);
    return *this;
  }
  unique_ptr& operator=(std::nullptr_t) noexcept {
    reset();
    return *this;
  }
  ~unique_ptr() { reset(); }

  explicit operator bool() const { return __atomic_load_n(&word_, __ATOMIC_RELAXED) != 0; }

  // The object, for reading or for writing, valid until the outermost scope ends. The owner must not be null (SIGSEGV
  // at the access). deref_mut marks the object as changed: use deref where you only read. non_temporal: the object is
  // not used again soon; its page is evicted before others.
  template <bool non_temporal = false>
  const T* deref(const deref_scope&) const {
    return static_cast<const T*>(at(non_temporal ? FARSIDE_OBJECT_NON_TEMPORAL : 0u));
  }
  template <bool non_temporal = false>
  T* deref_mut(const deref_scope&) {
    return static_cast<T*>(at(FARSIDE_OBJECT_WRITE | (non_temporal ? FARSIDE_OBJECT_NON_TEMPORAL : 0u)));
  }

  // A temporary scope would end before the result is used.
  template <bool non_temporal = false>
  const T* deref(const deref_scope&&) const = delete;
  template <bool non_temporal = false>
  T* deref_mut(const deref_scope&&) = delete;
  // As deref; nullptr if the owner is null.
  const T* get_if(const deref_scope& scope) const { return *this ? deref(scope) : nullptr; }

  // The object's address, valid until the outermost scope ends, without fetching it: for the arguments of calls
  // (<farside/offload.hpp>). nullptr if the owner is null.
  const T* address(const deref_scope&) const {
    return *this ? static_cast<const T*>(at(FARSIDE_OBJECT_UNFETCHED)) : nullptr;
  }
  const T* address(const deref_scope&&) const = delete;

  // Copy the object out, or in, without an open scope.
  T load() const {
    static_assert(std::is_trivially_copyable_v<T>, "an object with far pointers cannot be copied");
    deref_scope scope;
    return *deref(scope);
  }
  void store(const T& value) {
    deref_scope scope;
    *deref_mut(scope) = value;
  }
  // Calls change(object) with a T&, in a scope that ends with the call.
  template <typename Change>
  decltype(auto) modify(Change&& change) {
    deref_scope scope;
    return std::forward<Change>(change)(*deref_mut(scope));
  }

  // Destroys the object. Fetches it only if its type is not trivially destructible.
  void reset() noexcept {
    if (!*this) return;
    if constexpr (!std::is_trivially_destructible_v<T>) {
      deref_scope scope;
      deref_mut(scope)->~T();
      farside_object_delete(&word_);
    } else {
      farside_object_delete(&word_);
    }
  }

  void swap(unique_ptr& other) noexcept {
    unique_ptr mine(std::move(*this));
    take(other);
    other.take(mine);
  }
  friend void swap(unique_ptr& a, unique_ptr& b) noexcept { a.swap(b); }

 private:
  friend struct detail::access;
  template <typename U, typename... Arguments>
  friend unique_ptr<U> detail::make(unsigned, Arguments&&...);

  void* at(unsigned options) const { return farside_object_deref(&word_, detail::type_of<T>(), options); }
  void take(unique_ptr& other) noexcept {
    if (other) farside_object_move(&word_, &other.word_);
  }

  mutable uint64_t word_ = 0;
};
static_assert(sizeof(unique_ptr<int>) == 8);

template <typename T, typename... Arguments>
unique_ptr<T> detail::make(unsigned options, Arguments&&... arguments) {
  deref_scope scope;
  unique_ptr<T> pointer;
  void* place;
  options |= FARSIDE_OBJECT_OWN_SCOPE;
  if (farside_object_new(&pointer.word_, detail::type_of<T>(), options, &place) != 0) throw std::bad_alloc();
  if constexpr (std::is_nothrow_constructible_v<T, Arguments...>) {
    new (place) T(std::forward<Arguments>(arguments)...);
  } else {
    try {
      new (place) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
      farside_object_delete(&pointer.word_);
      throw;
    }
  }
  return pointer;
}

template <typename T, typename... Arguments>
unique_ptr<T> make_unique(Arguments&&... arguments) {
  return detail::make<T>(0, std::forward<Arguments>(arguments)...);
}

// Fetches the objects of `count` owners that are adjacent in memory, in few requests: see farside_object_prefetch.
template <typename T>
void prefetch(const unique_ptr<T>* first, size_t count) {
  if (count > 0) farside_object_prefetch(detail::access::word(*first), count, detail::type_of<T>());
}

// One of several owners of a far object; 8 bytes. The owners of an object share one block of 16 bytes in ordinary
// memory (docs/decisions/0013), so copying an owner does not touch the object. As with std::shared_ptr, threads may
// copy and destroy different owners of one object at the same time. An owner may be inside a far object and need not be
// declared by far_pointers, since Farside does not keep its address.
template <typename T>
class shared_ptr {
 public:
  using element_type = T;

  constexpr shared_ptr() = default;
  constexpr shared_ptr(std::nullptr_t) {}
  shared_ptr(unique_ptr<T>&& pointer) : block_(pointer ? new Block{{1}, std::move(pointer)} : nullptr) {}
  shared_ptr(const shared_ptr& other) noexcept : block_(other.block_) {
    if (block_) block_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  shared_ptr(shared_ptr&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  shared_ptr& operator=(shared_ptr other) noexcept {
    swap(other);
    return *this;
  }
  ~shared_ptr() { reset(); }

  explicit operator bool() const { return block_; }
  bool operator==(const shared_ptr& other) const { return block_ == other.block_; }
  long use_count() const { return block_ ? block_->owners.load(std::memory_order_relaxed) : 0; }

  template <bool non_temporal = false>
  const T* deref(const deref_scope& scope) const {
    return block_->object.template deref<non_temporal>(scope);
  }
  template <bool non_temporal = false>
  T* deref_mut(const deref_scope& scope) const {
    return block_->object.template deref_mut<non_temporal>(scope);
  }
  T load() const { return block_->object.load(); }
  void store(const T& value) const { block_->object.store(value); }

  void reset() noexcept {
    Block* block = std::exchange(block_, nullptr);
    if (block && block->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete block;
  }
  void swap(shared_ptr& other) noexcept { std::swap(block_, other.block_); }
  friend void swap(shared_ptr& a, shared_ptr& b) noexcept { a.swap(b); }

 private:
  struct Block {
    std::atomic<long> owners;
    unique_ptr<T> object;
  };
  Block* block_ = nullptr;
};
static_assert(sizeof(shared_ptr<int>) == 8);

template <typename T, typename... Arguments>
shared_ptr<T> make_shared(Arguments&&... arguments) {
  return shared_ptr<T>(make_unique<T>(std::forward<Arguments>(arguments)...));
}

}  // namespace farside
#endif
