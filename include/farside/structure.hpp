// A data structure of far objects: they lie on pages of their own, which leave by a policy of their own, and it can be
// asked which have left. At most 63 in a process; each exists as long as the process, so make them static.
//
//   static farside::structure cache({.capacity = 8ull << 30, .policy = "lru", .track_evictions = 1});
//   auto entry = farside::make_unique_in<Entry>(cache, key, value);
//   farside::hash_map<uint64_t, Entry> map(cache);
//   cache.take_evicted([&](uint64_t* owner) { ... });     // whose objects have left: an exclusive cache may forget
//   them
//
// Thread-safe. What a page costs and when it pays: docs/guide/containers.md, "Writing a far data structure".
#ifndef FARSIDE_STRUCTURE_HPP
#define FARSIDE_STRUCTURE_HPP

#include <farside/ptr.hpp>

#include <system_error>

namespace farside {

class structure {
 public:
  // std::system_error with what farside_structure_create says.
  explicit structure(const farside_structure_options& options) {
    int made = farside_structure_create(&options);
    if (made < 0) throw std::system_error(-made, std::generic_category(), "farside_structure_create");
    id_ = static_cast<unsigned>(made);
  }
  structure(const structure&) = delete;
  structure& operator=(const structure&) = delete;

  unsigned id() const { return id_; }

  // Calls each(owner) for each owner whose object has been evicted since the last call: see
  // farside_structure_take_evicted. Returns how many.
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
  unsigned id_ = 0;
};

template <typename T, typename... Arguments>
unique_ptr<T> make_unique_in(const structure& in, Arguments&&... arguments) {
  return detail::make<T>(FARSIDE_OBJECT_IN(in.id()), std::forward<Arguments>(arguments)...);
}

}  // namespace farside
#endif
