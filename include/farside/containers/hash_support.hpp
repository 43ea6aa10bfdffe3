// What the two hash maps share: entries, the near index of hash_map, iterators, and the functions that follow from
// others. Not an interface for programs. Thread-safety: as std::unordered_map.
#ifndef FARSIDE_CONTAINERS_HASH_SUPPORT_HPP
#define FARSIDE_CONTAINERS_HASH_SUPPORT_HPP

#include <farside/containers/detail.hpp>
#include <farside/containers/positions.hpp>

#include <bit>
#include <optional>
#include <stdexcept>

namespace farside::detail {

// A key and its value. std::pair is not trivially copyable.
template <typename K, typename V>
struct hash_entry {
  hash_entry(const K& key, const V& value) : first(key), second(value) {}
  K first;
  V second;
  friend bool operator==(const hash_entry& a, const hash_entry& b) {
    return a.first == b.first && a.second == b.second;
  }
};

// std::hash of an integer is often the integer itself. These mix every bit of it into every bit of the tag.
inline uint64_t mix64(uint64_t hash) {
  hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
  return (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
}
inline uint32_t mix(uint64_t hash) { return static_cast<uint32_t>(mix64(hash) >> 32); }

// Maps tags to slots; several slots may have the same tag. Open addressing with linear probing, at most 75 % full. At
// 75 % a search reads 2.5 cells on average if it succeeds, 8.5 if it does not, most of them in one cache line.
//   63             32 31              0
//  +-----------------+-----------------+
//  | tag             | slot + 1        |   0: empty
//  +-----------------+-----------------+
// The place of a cell depends on its tag only, so growing reads no keys.
class hash_index {
 public:
  static constexpr size_t kNone = ~size_t{0};

  size_t cells() const { return cells_.size(); }
  uint32_t slot(size_t cell) const { return static_cast<uint32_t>(cells_[cell]) - 1; }

  // The first cell with this tag for whose slot is(slot) is true, or kNone.
  template <typename Is>
  size_t find(uint32_t tag, Is is) const {
    if (cells_.empty()) return kNone;
    for (size_t at = home(tag);; at = next(at)) {
      if (cells_[at] == 0) return kNone;
      if (cells_[at] >> 32 == tag && is(slot(at))) return at;
    }
  }
  void reserve(size_t entries) {
    if (entries * 4 <= cells_.size() * 3) return;
    hash_index larger;
    larger.cells_.resize(std::bit_ceil(std::max<size_t>(8, entries + entries / 3 + 1)));
    for (uint64_t cell : cells_) {
      if (cell != 0) larger.put_cell(cell);
    }
    cells_.swap(larger.cells_);
  }
  // reserve() has made room.
  void put(uint32_t tag, uint32_t slot) { put_cell(uint64_t{tag} << 32 | (slot + 1)); }
  // Later cells of the probe sequence are moved up, so that no search ends too early.
  void remove(size_t hole) {
    for (size_t at = next(hole); cells_[at] != 0; at = next(at)) {
      size_t wanted = home(static_cast<uint32_t>(cells_[at] >> 32));
      if (distance(wanted, at) < distance(hole, at)) continue;
      cells_[hole] = cells_[at];
      hole = at;
    }
    cells_[hole] = 0;
  }

 private:
  size_t home(uint32_t tag) const { return (uint64_t{tag} * cells_.size()) >> 32; }
  size_t next(size_t at) const { return (at + 1) & (cells_.size() - 1); }
  size_t distance(size_t from, size_t to) const { return (to - from) & (cells_.size() - 1); }
  void put_cell(uint64_t cell) {
    size_t at = home(static_cast<uint32_t>(cell >> 32));
    while (cells_[at] != 0) at = next(at);
    cells_[at] = cell;
  }

  std::vector<uint64_t> cells_;
};

// An iterator: a slot number; some slots are empty. Needs Map::walk_to<write>(slot) and Map::next_slot(slot).
template <typename Map>
class slot_position {
 public:
  using value_type = typename Map::value_type;
  using reference = value_type;
  using pointer = arrow_proxy<value_type>;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::forward_iterator_tag;
  using iterator_category = std::input_iterator_tag;

  slot_position() = default;
  slot_position(Map& map, size_t slot) : map_(&map), slot_(slot) {}
  operator slot_position<const Map>() const requires(!std::is_const_v<Map>) { return {*map_, slot_}; }

  value_type operator*() const {
    deref_scope scope;
    return get(scope);
  }
  pointer operator->() const { return {**this}; }
  const value_type& get(const deref_scope&) const { return map_->template walk_to<false>(slot_); }
  // The key must not be changed.
  value_type& get_mut(const deref_scope&) const requires(!std::is_const_v<Map>) {
    return map_->template walk_to<true>(slot_);
  }
  slot_position& operator++() {
    slot_ = map_->next_slot(slot_ + 1);
    return *this;
  }
  slot_position operator++(int) { return std::exchange(*this, ++slot_position(*this)); }
  friend bool operator==(const slot_position& a, const slot_position& b) { return a.slot_ == b.slot_; }
  size_t slot() const { return slot_; }

 private:
  Map* map_ = nullptr;
  size_t slot_ = 0;
};

// An iterator whose * is the entry itself, valid until the scope ends.
template <typename Map>
class slot_scoped_position {
 public:
  using value_type = typename Map::value_type;
  using element = std::conditional_t<std::is_const_v<Map>, const value_type, value_type>;
  using reference = element&;
  using pointer = element*;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::forward_iterator_tag;

  slot_scoped_position() = default;
  slot_scoped_position(slot_position<Map> at, const deref_scope& scope) : at_(at), scope_(&scope) {}
  reference operator*() const {
    if constexpr (std::is_const_v<Map>) return at_.get(*scope_);
    else return at_.get_mut(*scope_);
  }
  pointer operator->() const { return &**this; }
  slot_scoped_position& operator++() { return ++at_, *this; }
  slot_scoped_position operator++(int) { return std::exchange(*this, ++slot_scoped_position(*this)); }
  friend bool operator==(const slot_scoped_position& a, const slot_scoped_position& b) { return a.at_ == b.at_; }

 private:
  slot_position<Map> at_;
  const deref_scope* scope_ = nullptr;
};

// The members that both maps derive from get, try_emplace, find_slot, next_slot, all_slots and visit.
template <typename Map, typename K, typename V>
class map_interface {
 public:
  using key_type = K;
  using mapped_type = V;
  using value_type = hash_entry<K, V>;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using iterator = slot_position<Map>;
  using const_iterator = slot_position<const Map>;

  [[nodiscard]] bool empty() const { return self().size() == 0; }
  iterator begin() { return {self(), self().next_slot(0)}; }
  iterator end() { return {self(), self().all_slots()}; }
  const_iterator begin() const { return {self(), self().next_slot(0)}; }
  const_iterator end() const { return {self(), self().all_slots()}; }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }
  auto in(const deref_scope& scope) const {
    using scoped = slot_scoped_position<const Map>;
    return scoped_range<scoped>(scoped(begin(), scope), scoped(end(), scope));
  }
  auto in_mut(const deref_scope& scope) {
    using scoped = slot_scoped_position<Map>;
    return scoped_range<scoped>(scoped(begin(), scope), scoped(end(), scope));
  }

  // A copy of the value; for an absent key, load returns no value and at throws std::out_of_range.
  std::optional<V> load(const K& key) const {
    deref_scope scope;
    const V* value = self().get(key, scope);
    return value ? std::optional<V>(*value) : std::nullopt;
  }
  V at(const K& key) const {
    deref_scope scope;
    return at(key, scope);
  }
  const V& at(const K& key, const deref_scope& scope) const {
    const V* value = self().get(key, scope);
    if (!value) throw std::out_of_range("farside: there is no such key in the map");
    return *value;
  }
  bool contains(const K& key) const {
    deref_scope scope;
    return self().get(key, scope) != nullptr;
  }
  size_t count(const K& key) const { return contains(key); }
  iterator find(const K& key) { return {self(), self().find_slot(key)}; }
  const_iterator find(const K& key) const { return {self(), self().find_slot(key)}; }

  // The bool of the result: an entry was added.
  template <typename... Arguments>
  std::pair<iterator, bool> emplace(const K& key, Arguments&&... arguments) {
    return self().try_emplace(key, std::forward<Arguments>(arguments)...);
  }
  std::pair<iterator, bool> insert(const value_type& value) { return self().try_emplace(value.first, value.second); }
  std::pair<iterator, bool> insert_or_assign(const K& key, const V& value) {
    V copy = value;
    auto result = self().try_emplace(key, copy);
    deref_scope scope;
    if (!result.second) result.first.get_mut(scope).second = copy;
    return result;
  }

  // f(const K&, const V&) or f(const K&, V&) for each entry, prefetched. f must not add or erase entries.
  template <bool non_temporal = false, typename F>
  void for_each(F f) const {
    self().template visit<false, non_temporal>(
        [&](value_type& e) { f(std::as_const(e.first), std::as_const(e.second)); });
  }
  template <bool non_temporal = false, typename F>
  void for_each_mut(F f) {
    self().template visit<true, non_temporal>([&](value_type& e) { f(std::as_const(e.first), e.second); });
  }

 private:
  Map& self() { return static_cast<Map&>(*this); }
  const Map& self() const { return static_cast<const Map&>(*this); }
};

}  // namespace farside::detail
#endif
