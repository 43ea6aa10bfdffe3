// What Farside's containers share: chunks of elements, tables of owners (spines), access to an object, and the
// detection of access patterns for prefetching. Not an interface for programs.
//
// Cost: reach() is farside_object_deref, 10 instructions while the object's access bit is set. Access patterns are
// learned on the slow path only. The access bits of an object are cleared when its page is evicted, so its first use
// after a fetch is seen here; later uses cost nothing and write nothing.
//
// Thread-safety: patterns are kept for each thread; spines are as thread-safe as std::vector.
// Source of the idea: AIFM 4.2.5, with the history of misses in place of that of accesses.
#ifndef FARSIDE_CONTAINERS_DETAIL_HPP
#define FARSIDE_CONTAINERS_DETAIL_HPP

#include <farside/structure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace farside::detail {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kLargestShared = 4080;  // larger objects take whole pages

template <typename T>
constexpr bool check_element() {
  static_assert(std::is_object_v<T> && !std::is_const_v<T>, "an element is a value");
  static_assert(
      std::is_trivially_copyable_v<T>,
      "Farside moves elements as bytes, so they have to be trivially copyable. For other types, use a container "
      "of the standard library with elements of farside::unique_ptr");
  static_assert(alignof(T) <= 64, "far objects are aligned to 64 bytes at most");
  return true;
}

// ---- Chunks ----

// 0: as many elements as make a chunk a little smaller than a page.
template <typename T, size_t requested>
inline constexpr size_t elements_of = requested != 0 ? requested : std::max<size_t>(1, kLargestShared / sizeof(T));

template <typename T, size_t count>
struct chunk {
  chunk() noexcept {}  // elements are not initialized
  union {
    T items[count];
  };
};

// ---- Reaching an object ----

// Dereferences an owner. Calls missed() before the slow path. The caller has a scope open.
template <bool write, bool non_temporal, typename Object, typename Missed>
inline Object* reach(const unique_ptr<Object>& owner, Missed missed) {
  constexpr unsigned options = (write ? FARSIDE_OBJECT_WRITE : 0u) | (non_temporal ? FARSIDE_OBJECT_NON_TEMPORAL : 0u);
  uint64_t* where = access::word(owner);
  uint64_t word = __atomic_load_n(where, __ATOMIC_RELAXED);
  if (__builtin_expect(farside_object_is_accessible(word, options), 1))
    return reinterpret_cast<Object*>(word >> FARSIDE_OWNER_ADDRESS_SHIFT_);
  missed();
  return static_cast<Object*>(farside_object_deref_slow(where, type_of<Object>(), options));
}

// The object's address, valid until the caller's scope ends. Nothing is fetched as a rule.
template <typename Object>
inline const Object* locate(const unique_ptr<Object>& owner) {
  return static_cast<const Object*>(
      farside_object_deref(access::word(owner), type_of<Object>(), FARSIDE_OBJECT_UNFETCHED));
}

// Creates an object in a null owner. The owner is constructed in its final place (copy elision), because moving it
// would cost a call. options: as for farside_object_new.
template <typename Object, typename... Arguments>
void make_in(unique_ptr<Object>& owner, unsigned options, Arguments&&... arguments) {
  ::new (static_cast<void*>(&owner)) unique_ptr<Object>(make<Object>(options, std::forward<Arguments>(arguments)...));
}

// How many objects of a size are requested ahead of a walk at most, and how many are used under one scope.
constexpr size_t depth_for(size_t bytes) { return std::clamp<size_t>(32 * kPage / bytes, 4, 256); }
constexpr size_t objects_per_scope(size_t bytes) { return std::max<size_t>(1, kPage / bytes); }

// ---- Access patterns ----

// Objects to request: `count` of them, at first, first + step, ...
struct prefetch_range {
  int64_t first = 0, step = 1, count = 0;
};

// Walks through containers, recognized from the positions that a thread missed: up to eight at the same time, each with
// a step. Two equal steps make a walk. From then on the next objects are requested, in windows that double.
class walks {
 public:
  prefetch_range missed(const void* container, int64_t at, int64_t depth) {
    walk* w = find(container, at);
    if (!w) {
      table_[next_++ % kWalks] = {container, at, 0, at, 0};
      return {};
    }
    return w->run < 2 ? prefetch_range{} : request(*w, depth);
  }

 private:
  static constexpr unsigned kWalks = 8;
  static constexpr int64_t kClose = 16;
  struct walk {
    const void* container;
    int64_t last, step, requested;  // positions; objects up to `requested` have been requested
    unsigned run;                   // how many steps in turn were equal
  };

  // The walk that this position continues, or one whose second position it may be; updated. nullptr: neither.
  walk* find(const void* container, int64_t at) {
    walk* fresh = nullptr;
    walk* close = nullptr;
    for (walk& w : table_) {
      if (w.container != container) continue;
      int64_t step = at - w.last;
      if (step == 0) return update(w, at, w.step, w.run);
      if (w.run > 0 && (step == w.step || (w.run > 1 && skips(step, w.step)))) return update(w, at, w.step, w.run + 1);
      if (w.run < 2 && step >= -kClose && step <= kClose) close = &w;
      if (w.run == 0) fresh = &w;
    }
    walk* start = close ? close : fresh;
    return start ? update(*start, at, at - start->last, 1) : nullptr;
  }
  // The objects in between were near, and so were not missed.
  static bool skips(int64_t distance, int64_t step) {
    return distance % step == 0 && distance / step > 0 && distance / step <= kClose;
  }
  static walk* update(walk& w, int64_t at, int64_t step, unsigned run) {
    if (step != w.step) w.requested = at;
    w.last = at;
    w.step = step;
    w.run = run;
    return &w;
  }
  static prefetch_range request(walk& w, int64_t depth) {
    int64_t want = std::min(depth, int64_t{2} << std::min(w.run, 10u));
    int64_t done = std::max<int64_t>(0, (w.requested - w.last) / w.step);
    if (done > want / 2) return {};
    w.requested = w.last + want * w.step;
    return {w.last + (done + 1) * w.step, w.step, want - done};
  }

  walk table_[kWalks] = {};
  unsigned next_ = 0;
};
inline thread_local constinit walks t_walks{};

// Records a miss and requests the objects ahead. Not inlined: the compiler must not keep the address of a thread-local
// over a switch of fibers, which may continue on another thread.
template <typename Spine>
[[gnu::noinline]] void note_miss(const void* container, const Spine& spine, size_t at) {
  auto size = static_cast<int64_t>(spine.size());
  prefetch_range a = t_walks.missed(container, static_cast<int64_t>(at), depth_for(Spine::kObjectBytes));
  if (a.step == 1) return spine.prefetch(a.first, std::clamp<int64_t>(size - a.first, 0, a.count));
  for (; a.count > 0 && a.first >= 0 && a.first < size; a.first += a.step, a.count--) spine.prefetch(a.first, 1);
}

// Prefetching for a loop over the objects up to `end` in order: no pattern has to be detected.
class run_ahead {
 public:
  explicit run_ahead(size_t end) : end_(end) {}
  template <typename Spine>
  [[gnu::noinline]] void missed(const Spine& spine, size_t at) {
    size_t done = requested_ > at ? requested_ - at : 0;
    window_ = std::min(window_ * 2, depth_for(Spine::kObjectBytes));
    if (done > window_ / 2) return;
    size_t first = at + done;  // the first request includes this object, so small objects are fetched together
    size_t last = std::min(end_, at + window_);
    if (first < last) spine.prefetch(first, last - first);
    requested_ = std::max(requested_, last);
  }

 private:
  size_t end_, requested_ = 0, window_ = 4;
};

// ---- Spines: the owners of a container's objects, near and in order ----

// A sequence of owners in blocks of `length`. Owners are never moved, so growing or moving a container touches no
// object.
template <typename Object, size_t length>
class spine {
 public:
  using owner = unique_ptr<Object>;
  static constexpr size_t kObjectBytes = sizeof(Object);

  spine() = default;
  spine(spine&& other) noexcept
      : blocks_(std::move(other.blocks_)), size_(std::exchange(other.size_, 0)), options_(other.options_) {}
  spine& operator=(spine&& other) noexcept {
    blocks_ = std::move(other.blocks_);
    size_ = std::exchange(other.size_, 0);
    options_ = other.options_;
    other.blocks_.clear();
    return *this;
  }
  // Objects that are created from now on belong to the data structure.
  void put_in(const structure& in) { options_ = FARSIDE_OBJECT_IN(in.id()); }
  size_t size() const { return size_; }
  owner& operator[](size_t i) { return blocks_[i / length][i % length]; }
  const owner& operator[](size_t i) const { return blocks_[i / length][i % length]; }

  // Appends an owner of a new object.
  template <typename... Arguments>
  void push(Arguments&&... arguments) {
    make_in(push_null(), options_, std::forward<Arguments>(arguments)...);
    size_++;
  }
  // Creates the object of a null owner.
  template <typename... Arguments>
  void fill(size_t i, Arguments&&... arguments) {
    make_in((*this)[i], options_, std::forward<Arguments>(arguments)...);
  }
  void pop() { (*this)[--size_] = nullptr; }
  void truncate(size_t size) {
    while (size_ > size) pop();
    blocks_.resize((size_ + length - 1) / length);
  }
  void clear() {
    blocks_.clear();
    size_ = 0;
  }
  void reserve(size_t size) {
    blocks_.reserve((size + length - 1) / length);
    while (blocks_.size() * length < size) blocks_.push_back(std::make_unique<owner[]>(length));
  }
  void prefetch(size_t first, size_t count) const {
    count = std::min(count, first < size_ ? size_ - first : 0);
    while (count > 0) {
      size_t row = std::min(count, length - first % length);
      farside::prefetch(&(*this)[first], row);
      first += row;
      count -= row;
    }
  }
  void swap(spine& other) noexcept {
    blocks_.swap(other.blocks_);
    std::swap(size_, other.size_);
    std::swap(options_, other.options_);
  }

 private:
  owner& push_null() {
    if (size_ == blocks_.size() * length) blocks_.push_back(std::make_unique<owner[]>(length));
    return (*this)[size_];
  }

  std::vector<std::unique_ptr<owner[]>> blocks_;
  size_t size_ = 0;
  unsigned options_ = 0;
};

}  // namespace farside::detail
#endif
