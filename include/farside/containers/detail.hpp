// What Farside's containers share: chunks of elements, spines of owners, the way to an object with advice on what
// comes next, and iterators. Not for programs.
//
// Cost: reach() is farside_object_deref, 10 instructions when the object is near and was used since it came. All
// learning of access patterns happens beyond it, where Farside must be asked anyway: an object that comes back has lost
// its licence, so the first use of each is seen here, and later ones cost nothing and write nothing.
//
// Thread-safety: what is learned is kept per thread; spines are as std::vector.
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
inline constexpr size_t kLargestShared = 4080;  // larger objects have pages of their own

template <typename T>
constexpr bool check_element() {
  static_assert(std::is_object_v<T> && !std::is_const_v<T>, "an element is a value");
  static_assert(std::is_trivially_copyable_v<T>,
                "Farside's containers hold trivially copyable elements only: Farside moves them as bytes. Keep a "
                "farside::unique_ptr in a std container for others");
  static_assert(alignof(T) <= 64, "far objects are aligned to 64 bytes at most");
  return true;
}

// ---- Chunks ----

// 0 asks for as many elements as make a chunk a little smaller than a page.
template <typename T, size_t asked>
inline constexpr size_t elements_of = asked != 0 ? asked : std::max<size_t>(1, kLargestShared / sizeof(T));

template <typename T, size_t count>
struct chunk {
  chunk() noexcept {}  // of undefined content
  union {
    T items[count];
  };
};

// ---- Reaching an object ----

// The object; `missed` is called first where it may be far.
template <bool write, bool non_temporal, typename Object, typename Missed>
inline Object* reach(const unique_ptr<Object>& owner, Missed missed) {
  constexpr unsigned options = (write ? FARSIDE_OBJECT_WRITE : 0u) | (non_temporal ? FARSIDE_OBJECT_NON_TEMPORAL : 0u);
  uint64_t* where = access::word(owner);
  uint64_t word = __atomic_load_n(where, __ATOMIC_RELAXED);
  if (__builtin_expect(farside_object_is_accessible(word, options), 1)) return reinterpret_cast<Object*>(word >> 16);
  missed();
  return static_cast<Object*>(farside_object_deref_slow(where, type_of<Object>(), options));
}

// Makes an object, by options of farside_object_new, in a null owner that stays where it is.
template <typename Object, typename... Arguments>
void make_in(unique_ptr<Object>& owner, unsigned options, Arguments&&... arguments) {
  ::new (static_cast<void*>(&owner)) unique_ptr<Object>(make<Object>(options, std::forward<Arguments>(arguments)...));
}

// How many objects of a size are asked for ahead of a walk, and used under one scope.
constexpr size_t depth_for(size_t bytes) { return std::clamp<size_t>(32 * kPage / bytes, 4, 256); }
constexpr size_t objects_per_scope(size_t bytes) { return std::max<size_t>(1, kPage / bytes); }

// ---- Access patterns ----

// What to ask for: `count` objects from `first` on, every `step`th.
struct ahead {
  int64_t first = 0, step = 1, count = 0;
};

// The last objects that a thread missed, as up to eight walks, each with its step (AIFM 4.2.5's window, seen from the
// misses). Two equal steps make a walk; from then on the next ones are asked for, in windows that double.
class walks {
 public:
  ahead missed(const void* container, int64_t at, int64_t depth) {
    walk* w = find(container, at);
    if (!w) {
      table_[next_++ % kWalks] = {container, at, 0, at, 0};
      return {};
    }
    return w->run < 2 ? ahead{} : ask(*w, depth);
  }

 private:
  static constexpr unsigned kWalks = 8;
  static constexpr int64_t kClose = 16;
  struct walk {
    const void* container;
    int64_t last, step, asked;  // positions; what lies up to `asked` was asked for
    unsigned run;               // equal steps
  };

  // The walk that goes on at this position, or one that may begin here.
  walk* find(const void* container, int64_t at) {
    walk* fresh = nullptr;
    walk* close = nullptr;
    for (walk& w : table_) {
      if (w.container != container) continue;
      int64_t step = at - w.last;
      if (step == 0) return go_on(w, at, w.step, w.run);
      if (w.run > 0 && (step == w.step || (w.run > 1 && skips(step, w.step)))) return go_on(w, at, w.step, w.run + 1);
      if (w.run < 2 && step >= -kClose && step <= kClose) close = &w;
      if (w.run == 0) fresh = &w;
    }
    walk* begun = close ? close : fresh;
    return begun ? go_on(*begun, at, at - begun->last, 1) : nullptr;
  }
  // Some on the way were near.
  static bool skips(int64_t distance, int64_t step) {
    return distance % step == 0 && distance / step > 0 && distance / step <= kClose;
  }
  static walk* go_on(walk& w, int64_t at, int64_t step, unsigned run) {
    if (step != w.step) w.asked = at;
    w.last = at;
    w.step = step;
    w.run = run;
    return &w;
  }
  static ahead ask(walk& w, int64_t depth) {
    int64_t want = std::min(depth, int64_t{2} << std::min(w.run, 10u));
    int64_t done = std::max<int64_t>(0, (w.asked - w.last) / w.step);
    if (done > want / 2) return {};
    w.asked = w.last + want * w.step;
    return {w.last + (done + 1) * w.step, w.step, want - done};
  }

  walk table_[kWalks] = {};
  unsigned next_ = 0;
};
inline thread_local constinit walks t_walks{};

// Not inline: the address of a thread's variable is not to be kept over a change of fibers.
template <typename Spine>
[[gnu::noinline]] void note_miss(const void* container, const Spine& spine, size_t at) {
  auto size = static_cast<int64_t>(spine.size());
  ahead a = t_walks.missed(container, static_cast<int64_t>(at), depth_for(Spine::kObjectBytes));
  if (a.step == 1) return spine.prefetch(a.first, std::clamp<int64_t>(size - a.first, 0, a.count));
  for (; a.count > 0 && a.first >= 0 && a.first < size; a.first += a.step, a.count--) spine.prefetch(a.first, 1);
}

// A walk over all objects from one position to another, which knows that it is one.
class run_ahead {
 public:
  explicit run_ahead(size_t end) : end_(end) {}
  template <typename Spine>
  [[gnu::noinline]] void missed(const Spine& spine, size_t at) {
    size_t done = asked_ > at ? asked_ - at : 0;
    window_ = std::min(window_ * 2, depth_for(Spine::kObjectBytes));
    if (done > window_ / 2) return;
    size_t first = at + done;  // at first, this one too: small objects come in one request
    size_t last = std::min(end_, at + window_);
    if (first < last) spine.prefetch(first, last - first);
    asked_ = std::max(asked_, last);
  }

 private:
  size_t end_, asked_ = 0, window_ = 4;
};

// ---- Spines: the owners of a container's objects, near and in order ----

// Owners never change their place, so growing and moving a container touches no object. Blocks of `length` owners.
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
  // Objects that are made from now on belong to the data structure.
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
  // A new object where there is none.
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
