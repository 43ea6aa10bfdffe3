// farside::hash_map: as std::unordered_map, with a near index and far entries, each one far object. C++20.
//
//   near:  index  cells of 8 bytes, linear probing: 32 bits of the hash, and the number of an entry
//          spine  entry number -> owner
//   far:   entry  key and value
//
// A look-up compares 32 bits of hash in near memory and fetches one entry. It fetches a wrong one once in millions of
// look-ups (in maps of 2^24 entries: once in 2^8); a look-up of an absent key fetches as rarely. Growing neither moves
// nor fetches entries.
//
//   farside::hash_map<uint64_t, Session> sessions;
//   sessions.try_emplace(7, user, now);
//   farside::deref_scope scope;
//   if (Session* s = sessions.get_mut(7, scope)) s->last = now;
//
// Keys and values are trivially copyable. At most 2^32 - 2 entries (std::length_error). Near memory: 19 to 29 bytes for
// each entry, 8 of them its owner; far_hash_map.hpp needs less. Complexity: as std::unordered_map. Iteration is in the
// order of insertion until an entry is erased, and is prefetched. References are valid until the scope ends, also when
// the map grows; iterators until their entry is erased. Exceptions: std::bad_alloc from insertions, which then have no
// effect; those of Hash and Equal. Thread-safety: as std::unordered_map. Iterators: positions.hpp, forward; they yield
// copies, pairs {first, second}. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_HASH_MAP_HPP
#define FARSIDE_CONTAINERS_HASH_MAP_HPP

#include <farside/containers/hash_support.hpp>

#include <functional>
#include <initializer_list>
#include <stdexcept>

namespace farside {

template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<K>>
class hash_map : public detail::map_interface<hash_map<K, V, Hash, Equal>, K, V> {
  using base = detail::map_interface<hash_map, K, V>;
  friend base;
  static_assert(detail::check_element<K>() && detail::check_element<V>());

 public:
  using typename base::const_iterator, typename base::iterator, typename base::value_type;

  hash_map() = default;
  explicit hash_map(size_t size, const Hash& hash = Hash(), const Equal& equal = Equal()) : hash_(hash), equal_(equal) {
    reserve(size);
  }
  explicit hash_map(const structure& in) { entries_.put_in(in); }
  hash_map(std::initializer_list<value_type> values) {
    for (const value_type& v : values) this->insert(v);
  }
  hash_map(hash_map&& other) noexcept { swap(other); }
  hash_map& operator=(hash_map&& other) noexcept {
    if (this == &other) return *this;
    clear();
    swap(other);
    return *this;
  }

  size_t size() const { return size_; }
  size_t bucket_count() const { return index_.cells(); }
  float load_factor() const { return index_.cells() == 0 ? 0 : float(size_) / float(index_.cells()); }
  void reserve(size_t size) { index_.reserve(size); }
  void clear() {
    index_ = {};
    entries_.clear();
    free_.clear();
    size_ = 0;
  }
  void swap(hash_map& other) noexcept {
    std::swap(index_, other.index_);
    entries_.swap(other.entries_);
    free_.swap(other.free_);
    std::swap(size_, other.size_);
    std::swap(hash_, other.hash_);
    std::swap(equal_, other.equal_);
  }
  friend void swap(hash_map& a, hash_map& b) noexcept { a.swap(b); }

  // ---- Look-up: nullptr if the key is absent ----
  template <bool non_temporal = false>
  const V* get(const K& key, const deref_scope&) const {
    size_t cell = locate<non_temporal>(key, tag_of(key));
    return cell == kNone ? nullptr : &entry<false, non_temporal>(index_.slot(cell)).second;
  }
  template <bool non_temporal = false>
  V* get_mut(const K& key, const deref_scope&) {
    size_t cell = locate<non_temporal>(key, tag_of(key));
    return cell == kNone ? nullptr : &entry<true, non_temporal>(index_.slot(cell)).second;
  }
  // A hint: the key will be looked up soon. Fetches its entry as farside::prefetch does.
  void prefetch(const K& key) const {
    index_.find(tag_of(key), [&](uint32_t slot) {
      entries_.prefetch(slot, 1);
      return true;
    });
  }

  // ---- Changes; the bool of the result: an entry was added ----
  template <typename... Arguments>
  std::pair<iterator, bool> try_emplace(const K& key, Arguments&&... arguments) {
    deref_scope scope;
    uint32_t tag = tag_of(key);
    size_t cell = locate(key, tag);
    if (cell != kNone) return {{*this, index_.slot(cell)}, false};
    uint32_t slot = add(tag, key, V(std::forward<Arguments>(arguments)...));
    return {{*this, slot}, true};
  }
  size_t erase(const K& key) {
    deref_scope scope;
    size_t cell = locate(key, tag_of(key));
    if (cell == kNone) return 0;
    remove(cell);
    return 1;
  }
  // Returns an iterator to the next entry.
  iterator erase(const_iterator where) {
    deref_scope scope;
    K key = where.get(scope).first;
    auto slot = static_cast<uint32_t>(where.slot());
    remove(index_.find(tag_of(key), [slot](uint32_t other) { return other == slot; }));
    return {*this, next_slot(slot + 1)};
  }

 private:
  friend iterator;
  friend const_iterator;
  static constexpr size_t kNone = detail::hash_index::kNone;

  uint32_t tag_of(const K& key) const { return detail::mix(hash_(key)); }
  template <bool write, bool non_temporal = false>
  value_type& entry(size_t slot) const {
    return *detail::reach<write, non_temporal>(entries_[slot], [] {});
  }
  // An entry that an iterator accesses: a miss is recorded, so that the next ones are prefetched.
  template <bool write>
  value_type& walk_to(size_t slot) const {
    return *detail::reach<write, false>(entries_[slot], [&] { detail::note_miss(this, entries_, slot); });
  }
  template <bool non_temporal = false>
  size_t locate(const K& key, uint32_t tag) const {
    return index_.find(tag, [&](uint32_t slot) { return equal_(entry<false, non_temporal>(slot).first, key); });
  }
  size_t find_slot(const K& key) const {
    deref_scope scope;
    size_t cell = locate(key, tag_of(key));
    return cell == kNone ? entries_.size() : index_.slot(cell);
  }
  size_t all_slots() const { return entries_.size(); }
  size_t next_slot(size_t slot) const {
    while (slot < entries_.size() && !entries_[slot]) slot++;
    return slot;
  }
  uint32_t add(uint32_t tag, const K& key, const V& value) {
    if (entries_.size() >= UINT32_MAX - 1 && free_.empty())
      throw std::length_error("farside::hash_map: more than 2^32 - 2 entries");
    index_.reserve(size_ + 1);
    auto slot = static_cast<uint32_t>(entries_.size());
    if (free_.empty()) {
      entries_.push(key, value);
    } else {
      slot = free_.back();
      entries_.fill(slot, key, value);
      free_.pop_back();
    }
    index_.put(tag, slot);
    size_++;
    return slot;
  }
  void remove(size_t cell) {
    uint32_t slot = index_.slot(cell);
    free_.push_back(slot);
    index_.remove(cell);
    entries_[slot] = nullptr;
    size_--;
  }
  template <bool write, bool non_temporal, typename F>
  void visit(F f) const {
    detail::run_ahead next(entries_.size());
    for (size_t slot = next_slot(0); slot < entries_.size();) {
      deref_scope scope;
      for (size_t i = 0; i < detail::objects_per_scope(sizeof(value_type)) && slot < entries_.size(); i++) {
        f(*detail::reach<write, non_temporal>(entries_[slot], [&] { next.missed(entries_, slot); }));
        slot = next_slot(slot + 1);
      }
    }
  }

  detail::hash_index index_;
  detail::spine<value_type, 512> entries_;  // a null owner: a free entry
  std::vector<uint32_t> free_;              // numbers of the free entries
  size_t size_ = 0;
  [[no_unique_address]] Hash hash_;
  [[no_unique_address]] Equal equal_;
};

}  // namespace farside
#endif
