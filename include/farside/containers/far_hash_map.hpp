// farside::far_hash_map: as std::unordered_map, with buckets in far memory. A bucket of about 512 bytes holds entries
// and a byte of hash for each. Only the owners of buckets are near: 0.4 bytes for an entry of 16 bytes. C++20.
//
//   near:  spine, bucket number -> owner
//   far:   bucket: count | next | a byte of hash for each entry | entries      next: overflow bucket
//
//   farside::far_hash_map<uint64_t, uint64_t> counts;
//   counts.try_emplace(7, 1);
//   farside::deref_scope scope;
//   if (uint64_t* count = counts.get_mut(7, scope)) ++*count;
//
// It grows one bucket at a time (linear hashing), so no operation handles more than one chain's entries. Buckets are 70
// % full on average. A look-up fetches one bucket; 3 % of entries of 16 bytes are in an overflow bucket, 9 % of entries
// of 72 bytes.
//
// farside::hash_map is better for entries of 64 bytes and more, for skewed keys (here a hot entry keeps its whole
// bucket near), for look-ups of absent keys, and where references have to outlive insertions. Keys and values are
// trivially copyable. Complexity: as std::unordered_map. Insertions and erasures invalidate references and iterators;
// there is no erase by iterator. Exceptions: std::bad_alloc from insertions, which then have no effect; those of Hash
// and Equal. Thread-safety: as std::unordered_map. Iterators: positions.hpp, forward; they yield copies, pairs {first,
// second}. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_FAR_HASH_MAP_HPP
#define FARSIDE_CONTAINERS_FAR_HASH_MAP_HPP

#include <farside/containers/hash_support.hpp>

#include <functional>
#include <initializer_list>
#include <stdexcept>

namespace farside {

template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<K>,
          size_t EntriesPerBucket = std::clamp<size_t>((512 - 8) / (sizeof(detail::hash_entry<K, V>) + 1), 4, 64)>
class far_hash_map : public detail::map_interface<far_hash_map<K, V, Hash, Equal, EntriesPerBucket>, K, V> {
  using base = detail::map_interface<far_hash_map, K, V>;
  friend base;
  static_assert(detail::check_element<K>() && detail::check_element<V>());

 public:
  using typename base::const_iterator, typename base::iterator, typename base::value_type;

  far_hash_map() = default;
  explicit far_hash_map(size_t size, const Hash& hash = Hash(), const Equal& equal = Equal())
      : hash_(hash), equal_(equal) {
    reserve(size);
  }
  explicit far_hash_map(const structure& in) {
    buckets_.put_in(in);
    overflow_.put_in(in);
  }
  far_hash_map(std::initializer_list<value_type> values) {
    for (const value_type& v : values) this->insert(v);
  }
  far_hash_map(far_hash_map&& other) noexcept { swap(other); }
  far_hash_map& operator=(far_hash_map&& other) noexcept {
    if (this == &other) return *this;
    clear();
    swap(other);
    return *this;
  }

  size_t size() const { return size_; }
  size_t bucket_count() const { return buckets_.size(); }
  void reserve(size_t size) {
    while (is_full_with(size)) add_bucket();
  }
  void clear() {
    buckets_.clear();
    overflow_.clear();
    spare_.clear();
    size_ = 0;
    base_ = 1;
  }
  void swap(far_hash_map& other) noexcept {
    buckets_.swap(other.buckets_);
    overflow_.swap(other.overflow_);
    spare_.swap(other.spare_);
    std::swap(size_, other.size_);
    std::swap(base_, other.base_);
    std::swap(hash_, other.hash_);
    std::swap(equal_, other.equal_);
  }
  friend void swap(far_hash_map& a, far_hash_map& b) noexcept { a.swap(b); }

  // ---- Look-up: nullptr if the key is absent ----
  template <bool non_temporal = false>
  const V* get(const K& key, const deref_scope&) const {
    place p = locate<non_temporal>(key, hash_of(key));
    return p.bucket == kNone ? nullptr : &reach_bucket<false, non_temporal>(p.bucket).items[p.index].second;
  }
  template <bool non_temporal = false>
  V* get_mut(const K& key, const deref_scope&) {
    place p = locate<non_temporal>(key, hash_of(key));
    return p.bucket == kNone ? nullptr : &reach_bucket<true, non_temporal>(p.bucket).items[p.index].second;
  }
  // A hint: the key will be looked up soon. Fetches its bucket as farside::prefetch does.
  void prefetch(const K& key) const {
    if (buckets_.size() > 0) buckets_.prefetch(bucket_of(hash_of(key)), 1);
  }

  // ---- Changes; the bool of the result: an entry was added ----
  template <typename... Arguments>
  std::pair<iterator, bool> try_emplace(const K& key, Arguments&&... arguments) {
    deref_scope scope;
    uint64_t hash = hash_of(key);
    place p = locate(key, hash);
    if (p.bucket != kNone) return {{*this, slot_of(p)}, false};
    value_type entry(key, V(std::forward<Arguments>(arguments)...));
    if (is_full_with(size_ + 1)) add_bucket();
    if (spare_.empty()) add_spare();
    p = append(bucket_of(hash), hash, entry);
    size_++;
    return {{*this, slot_of(p)}, true};
  }
  size_t erase(const K& key) {
    deref_scope scope;
    place p = locate(key, hash_of(key));
    if (p.bucket == kNone) return 0;
    remove(bucket_of(hash_of(key)), p);
    size_--;
    return 1;
  }

 private:
  friend iterator;
  friend const_iterator;
  static constexpr size_t kEntries = EntriesPerBucket;
  static constexpr size_t kNone = ~size_t{0};
  static constexpr size_t kOverflow = size_t{1} << 32;  // bucket numbers from here on are those of overflow_

  struct bucket {
    bucket() noexcept {}
    uint32_t count = 0;
    uint32_t next = 0;  // number of the overflow bucket + 1; 0: none. All buckets of a chain but the last are full
    uint8_t tags[kEntries];
    union {
      value_type items[kEntries];
    };
  };
  using buckets = detail::spine<bucket, 512>;
  struct place {
    size_t bucket = kNone, index = 0;
  };

  static uint8_t tag_of(uint64_t hash) { return static_cast<uint8_t>(hash >> 56); }
  uint64_t hash_of(const K& key) const {
    uint64_t hash = detail::mix64(hash_(key));
    return hash ^ hash >> 32;
  }
  // Linear hashing: a round begins with base_ buckets, splits each in turn, and ends with twice as many.
  size_t bucket_of(uint64_t hash) const {
    size_t b = hash & (base_ * 2 - 1);
    return b < buckets_.size() ? b : b - base_;
  }
  bool is_full_with(size_t size) const { return size * 10 > buckets_.size() * kEntries * 7; }

  template <bool write, bool non_temporal = false>
  bucket& reach_bucket(size_t b) const {
    return *detail::reach<write, non_temporal>(b < kOverflow ? buckets_[b] : overflow_[b - kOverflow], [] {});
  }
  template <bool non_temporal = false>
  place locate(const K& key, uint64_t hash) const {
    if (buckets_.size() == 0) return {};
    for (size_t b = bucket_of(hash);;) {
      const bucket& here = reach_bucket<false, non_temporal>(b);
      for (size_t i = 0; i < here.count; i++) {
        if (here.tags[i] == tag_of(hash) && equal_(here.items[i].first, key)) return {b, i};
      }
      if (here.next == 0) return {};
      b = kOverflow + here.next - 1;
    }
  }

  // ---- Chains. append() needs a spare bucket, and fails in no other way ----
  place append(size_t b, uint64_t hash, const value_type& entry) {
    bucket* here = &reach_bucket<true>(b);
    while (here->next != 0) here = &reach_bucket<true>(b = kOverflow + here->next - 1);
    if (here->count == kEntries) {
      here->next = spare_.back() + 1;
      spare_.pop_back();
      here = &reach_bucket<true>(b = kOverflow + here->next - 1);
    }
    here->tags[here->count] = tag_of(hash);
    ::new (static_cast<void*>(&here->items[here->count])) value_type(entry);
    return {b, here->count++};
  }
  // The chain's last entry takes the place of the removed one.
  void remove(size_t first, place hole) {
    bucket* before = nullptr;
    bucket* last = &reach_bucket<true>(first);
    while (last->next != 0) before = std::exchange(last, &reach_bucket<true>(kOverflow + last->next - 1));
    bucket& here = reach_bucket<true>(hole.bucket);
    last->count--;
    if (&here != last || hole.index != last->count) {
      here.tags[hole.index] = last->tags[last->count];
      ::new (static_cast<void*>(&here.items[hole.index])) value_type(last->items[last->count]);
    }
    if (last->count > 0 || !before) return;
    spare_.push_back(std::exchange(before->next, 0) - 1);
  }
  void add_spare() {
    if (overflow_.size() == UINT32_MAX) throw std::length_error("farside::far_hash_map: more than 2^32 buckets");
    spare_.reserve(overflow_.size() + 1);  // so that no later push_back fails
    overflow_.push();
    spare_.push_back(static_cast<uint32_t>(overflow_.size() - 1));
  }
  // Splits the next bucket of the round. Everything that can fail comes first: the two halves need no more spare
  // buckets than the chain that is split frees.
  void add_bucket() {
    if (buckets_.size() == kOverflow) throw std::length_error("farside::far_hash_map: more than 2^32 buckets");
    if (buckets_.size() == base_ * 2) base_ *= 2;
    if (buckets_.size() == 0) return buckets_.push();
    deref_scope scope;
    size_t whole = buckets_.size() - base_;
    std::vector<std::pair<uint64_t, value_type>> entries;
    for (bucket* b = &reach_bucket<false>(whole); b;
         b = b->next == 0 ? nullptr : &reach_bucket<false>(kOverflow + b->next - 1)) {
      for (size_t i = 0; i < b->count; i++) entries.emplace_back(hash_of(b->items[i].first), b->items[i]);
    }
    buckets_.push();
    empty_chain(whole);
    for (auto& [hash, entry] : entries) append(bucket_of(hash), hash, entry);
  }
  void empty_chain(size_t first) {
    for (size_t b = first;;) {
      bucket& here = reach_bucket<true>(b);
      here.count = 0;
      if (here.next == 0) return;
      uint32_t next = std::exchange(here.next, 0) - 1;
      spare_.push_back(next);
      b = kOverflow + next;
    }
  }

  // ---- Walks: over the buckets, then over the overflow buckets ----
  size_t all_buckets() const { return buckets_.size() + overflow_.size(); }
  size_t all_slots() const { return all_buckets() * kEntries; }
  size_t slot_of(place p) const {
    size_t b = p.bucket < kOverflow ? p.bucket : p.bucket - kOverflow + buckets_.size();
    return b * kEntries + p.index;
  }
  size_t find_slot(const K& key) const {
    deref_scope scope;
    place p = locate(key, hash_of(key));
    return p.bucket == kNone ? all_slots() : slot_of(p);
  }
  template <bool write>
  bucket& walk_to_bucket(size_t b) const {
    if (b >= buckets_.size()) return reach_bucket<write>(b - buckets_.size() + kOverflow);
    return *detail::reach<write, false>(buckets_[b], [&] { detail::note_miss(this, buckets_, b); });
  }
  template <bool write>
  value_type& walk_to(size_t slot) const {
    return walk_to_bucket<write>(slot / kEntries).items[slot % kEntries];
  }
  size_t next_slot(size_t slot) const {
    deref_scope scope;
    size_t i = slot % kEntries;
    for (size_t b = slot / kEntries; b < all_buckets(); b++, i = 0) {
      if (i < walk_to_bucket<false>(b).count) return b * kEntries + i;
    }
    return all_slots();
  }
  template <bool write, bool non_temporal, typename F>
  void visit(F f) const {
    visit_spine<write, non_temporal>(buckets_, f);
    visit_spine<write, non_temporal>(overflow_, f);
  }
  template <bool write, bool non_temporal, typename F>
  static void visit_spine(const buckets& all, F& f) {
    detail::run_ahead next(all.size());
    for (size_t b = 0; b < all.size();) {
      deref_scope scope;
      for (size_t i = 0; i < detail::objects_per_scope(sizeof(bucket)) && b < all.size(); i++, b++) {
        bucket& here = *detail::reach<write, non_temporal>(all[b], [&] { next.missed(all, b); });
        for (size_t e = 0; e < here.count; e++) f(here.items[e]);
      }
    }
  }

  buckets buckets_, overflow_;
  std::vector<uint32_t> spare_;  // overflow buckets that are in no chain; they are empty
  size_t size_ = 0;
  size_t base_ = 1;  // a power of two; buckets_ has base_ to 2 * base_ buckets, or none
  [[no_unique_address]] Hash hash_;
  [[no_unique_address]] Equal equal_;
};

}  // namespace farside
#endif
