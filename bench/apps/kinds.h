// The types that an application is a template over: those of the standard library, with hints, and those of Farside,
// under one interface. An application AppOf<Kind> is built with both in one program; --types chooses.
#pragma once
#include <farside/containers/array.hpp>
#include <farside/containers/hash_map.hpp>
#include <farside/containers/vector.hpp>

#include <deque>
#include <unordered_map>

#include "app.h"

namespace farside::apps {

struct NoScope {
  NoScope() {}  // user-provided, so that an unused scope causes no warning
};

template <typename K, typename V>
class StdMap : public std::unordered_map<K, V> {
 public:
  // A hint on each node before it is compared, which is where a programmer can put one.
  const V* get(const K& key, const NoScope&) const {
    size_t bucket = this->bucket(key);
    for (auto at = this->begin(bucket); at != this->end(bucket); ++at) {
      hint(&*at, sizeof *at, FARSIDE_READ);
      if (at->first == key) return &at->second;
    }
    return nullptr;
  }
};

// Elements that are read as a whole. non_temporal: not soon again, so evicted before others.
template <typename T>
class StdElements {
 public:
  explicit StdElements(size_t size) : size_(size), elements_(make_array<T>(size)) {}
  size_t size() const { return size_; }
  template <bool non_temporal = false>
  const T& get(size_t i, const NoScope&) const {
    hint(&elements_[i], sizeof(T), FARSIDE_READ | (non_temporal ? FARSIDE_PRIORITY(3) : 0));
    return elements_[i];
  }
  T& get_mut(size_t i, const NoScope&) { return elements_[i]; }

 private:
  size_t size_;
  Array<T> elements_;
};

// Elements that are appended and never moved, read one by one.
template <typename T>
class StdRecords : public std::deque<T> {
 public:
  const T& get(size_t i, const NoScope&) const {
    const T& record = (*this)[i];
    hint(&record, sizeof record, FARSIDE_READ);
    return record;
  }
  T& get_mut(size_t i, const NoScope&) { return (*this)[i]; }
};

struct StdKind {
  using Scope = NoScope;
  template <typename K, typename V>
  using Map = StdMap<K, V>;
  template <typename T>
  using Elements = StdElements<T>;
  template <typename T>
  using Records = StdRecords<T>;
};

struct FarKind {
  using Scope = deref_scope;
  template <typename K, typename V>
  using Map = hash_map<K, V>;
  template <typename T>
  using Elements = array<T, dynamic_size, 1>;
  template <typename T>
  using Records = vector<T, 1>;
};

// main() of an application over types.
template <template <typename> typename AppOf>
int run_over_types(const char* name, int argc, char** argv) {
  std::string types = "std";
  Arguments a = parse(argc, argv, {{"--types", &types}});
  if (types == "std") return run_app<AppOf<StdKind>>(name, a);
  if (types == "far") return run_app<AppOf<FarKind>>(name, a);
  usage(argv[0], "--types: std or far");
}

}  // namespace farside::apps
