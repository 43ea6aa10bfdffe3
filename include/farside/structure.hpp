// A data structure of far objects. Its objects share pages with each other only; these pages can be evicted by a
// separate policy, and their evictions can be queried, or a handler is called before an object leaves. C++17.
//
//   static farside::structure cache({8ull << 30, "lru", 1});  // capacity, policy, track_evictions
//   auto entry = farside::make_unique_in<Entry>(cache, Entry{1, 2});
//   cache.take_evicted([](uint64_t* owner) { printf("evicted: the object of %p\n", static_cast<void*>(owner)); });
//
// farside::vector, hash_map and far_hash_map have constructors that take a structure. A process has at most 63, and
// each exists as long as the process, so make them static.
//
// Thread-safe. Cost: a page that is filled by each thread that creates objects of the structure. Source
// of the idea: AIFM 4.2.3 (docs/references.md). Guide: docs/guide/containers.md, "Writing a far data structure".
#ifndef FARSIDE_STRUCTURE_HPP
#define FARSIDE_STRUCTURE_HPP

#include <farside/ptr.hpp>

#include <system_error>

namespace farside {

class structure {
 public:
  // std::system_error with the error of farside_structure_create.
  explicit structure(const farside_structure_options& options) {
    int made = farside_structure_create(&options);
    if (made < 0) throw std::system_error(-made, std::generic_category(), "farside_structure_create");
    id_ = static_cast<unsigned>(made);
  }
  structure(const structure&) = delete;
  structure& operator=(const structure&) = delete;

  unsigned id() const { return id_; }

  // Before an object leaves near memory, handler(T& object, uint64_t* owner) is called, on a thread of Farside. It
  // returns whether the object may leave; if not, it is asked again later. It may write to the object, and destroy it
  // by its pointer. It waits for nothing: see farside_structure_on_evict for the rules. All objects of the structure
  // are of type T. The handler is used until remove_handler() returns. std::system_error: the structure has objects, or
  // tracks evictions.
  template <typename T, typename Handler>
  void on_evict(Handler& handler) const {
    set_handler(
        [](uint64_t* owner, void* object, size_t, void* context) {
          bool permits = (*static_cast<Handler*>(context))(*static_cast<T*>(object), owner);
          return permits ? FARSIDE_EVICTION_PERMITTED : FARSIDE_EVICTION_DELAYED;
        },
        const_cast<void*>(static_cast<const void*>(&handler)));
  }
  // From now on objects leave without calls. Waits for a call in progress, so it is not called by the handler.
  void remove_handler() const { set_handler(nullptr, nullptr); }

  // Calls each(owner) for each owner whose object has been evicted since the last call, on the calling thread, and
  // returns the number of calls. Best effort, for structures with track_evictions: see farside_structure_take_evicted.
  template <typename Each>
  size_t take_evicted(Each each) {
    uint64_t* owners[512];
    size_t all = 0;
    for (;;) {
      ssize_t count = farside_structure_take_evicted(id_, owners, 512);
      if (count <= 0) return all;
      for (ssize_t i = 0; i < count; i++) each(owners[i]);
      all += static_cast<size_t>(count);
    }
  }

 private:
  void set_handler(farside_eviction_handler* handler, void* context) const {
    int error = farside_structure_on_evict(id_, handler, context);
    if (error != 0) throw std::system_error(-error, std::generic_category(), "farside_structure_on_evict");
  }

  unsigned id_ = 0;
};

// While it lives, no object of the structures is moved: for several calls of functions that follow owners
// (<farside/offload.hpp>). See farside_object_stop_moves. The thread has no scope open when it begins and ends.
class moves_stopped {
 public:
  // std::system_error: a scope is open.
  template <typename... Structures>
  explicit moves_stopped(const Structures&... of) {
    int error = farside_object_stop_moves(((uint64_t{1} << of.id()) | ...), &stopped_);
    if (error != 0) throw std::system_error(-error, std::generic_category(), "farside_object_stop_moves");
  }
  ~moves_stopped() { farside_object_permit_moves(stopped_); }
  moves_stopped(const moves_stopped&) = delete;
  moves_stopped& operator=(const moves_stopped&) = delete;

 private:
  uint64_t stopped_ = 0;
};

// As make_unique, for an object of the structure.
template <typename T, typename... Arguments>
unique_ptr<T> make_unique_in(const structure& in, Arguments&&... arguments) {
  return detail::make<T>(FARSIDE_OBJECT_IN(in.id()), std::forward<Arguments>(arguments)...);
}

}  // namespace farside
#endif
