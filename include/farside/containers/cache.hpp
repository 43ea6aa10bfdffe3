// farside::cache: a map of which entries disappear when near memory is needed for something else. It takes as much near
// memory as the eviction policy leaves it, and nothing of it is ever far. For what can be computed or fetched again:
// results of queries, rendered pages, entries of a map that is far (remote_hash_map.hpp) or in a database. C++20.
//
//   static farside::cache<uint64_t, double> results({64ull << 30, nullptr, 0});  // capacity, policy, track_evictions
//   std::optional<double> result = results.load(7);
//   if (!result) results.store(7, 1.0 / 7);
//
// An entry that leaves is dropped by an eviction handler (structure.hpp). on_drop is called before: there a program
// writes a changed entry back, or counts. What is used is dropped last: see "policy" there.
//
// In a program that does not run under `farside run` nothing is dropped.
//
// Keys and values are trivially copyable. Near memory: as hash_map. Thread-safe: operations lock a part of the
// entries, one of 64 by the key's hash. A cache uses up one of the 63 structures of a process, for the life of the
// process. Exceptions: std::bad_alloc from store(), which then has no effect; std::system_error from the constructor.
//
// Source of the idea: AIFM 4.2.3 and figure 9 (docs/references.md). Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_CACHE_HPP
#define FARSIDE_CONTAINERS_CACHE_HPP

#include <farside/fiber.h>
#include <farside/containers/hash_map.hpp>

#include <functional>
#include <mutex>

namespace farside {

template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<K>>
class cache {
 public:
  // Called with an entry before it is dropped, on a thread of Farside. Other threads that use a key of the same part
  // wait. So it is short, and uses neither this cache nor a lock that a thread may hold while it uses the cache; it may
  // use other far objects and all memory, and throws no exception.
  using drop_function = std::function<void(const K&, const V&)>;

  explicit cache(const farside_structure_options& options, drop_function on_drop = nullptr)
      : on_drop_(std::move(on_drop)), in_(options) {
    for (part& p : parts_) p.entries.emplace(in_);
    in_.on_evict<entry>(*this);
  }
  ~cache() { in_.remove_handler(); }
  cache(const cache&) = delete;
  cache& operator=(const cache&) = delete;

  // A copy of the value, or none.
  std::optional<V> load(const K& key) {
    part& p = part_of(key);
    locked lock(p.mutex);
    return p.entries->load(key);
  }
  // f(V&) with the value, if there is one, under the lock of its part. Returns whether there is one.
  template <typename F>
  bool update(const K& key, F f) {
    part& p = part_of(key);
    locked lock(p.mutex);
    deref_scope scope;
    V* value = p.entries->get_mut(key, scope);
    if (value) f(*value);
    return value != nullptr;
  }
  void store(const K& key, const V& value) {
    part& p = part_of(key);
    locked lock(p.mutex);
    p.entries->insert_or_assign(key, value);
  }
  // Whether there was an entry. on_drop is not called.
  bool erase(const K& key) {
    part& p = part_of(key);
    locked lock(p.mutex);
    return p.entries->erase(key) > 0;
  }
  void clear() {
    for (part& p : parts_) {
      locked lock(p.mutex);
      p.entries->clear();
    }
  }
  // Entries may be dropped at any time, so it is out of date when it returns.
  size_t size() const {
    size_t sum = 0;
    for (const part& p : parts_) {
      locked lock(p.mutex);
      sum += p.entries->size();
    }
    return sum;
  }

  // Internal: the eviction handler.
  bool operator()(const detail::hash_entry<K, V>& leaving, uint64_t*) {
    K key = leaving.first;
    part& p = part_of(key);
    std::unique_lock<std::mutex> lock(p.mutex, std::try_to_lock);
    if (!lock) return false;
    if (on_drop_) on_drop_(key, leaving.second);
    p.entries->erase(key);
    return true;
  }

 private:
  static constexpr size_t kParts = 64;
  using entry = detail::hash_entry<K, V>;
  // A fiber keeps its worker meanwhile: another one would wait for the lock.
  class locked {
   public:
    explicit locked(std::mutex& mutex) : mutex_(mutex) {
      farside_fiber_hold();
      mutex_.lock();
    }
    ~locked() {
      mutex_.unlock();
      farside_fiber_release();
    }
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;

   private:
    std::mutex& mutex_;
  };
  struct part {
    mutable std::mutex mutex;
    std::optional<hash_map<K, V, Hash, Equal>> entries;
  };

  // By other bits of the hash than those that the index of a part uses.
  part& part_of(const K& key) { return parts_[detail::mix64(hash_(key)) % kParts]; }

  part parts_[kParts];
  drop_function on_drop_;
  [[no_unique_address]] Hash hash_;
  structure in_;
};

}  // namespace farside
#endif
