// farside::remote_hash_map: a hash map of which nothing is near: no index, and no owner of an entry. Each operation is
// a call (offload.hpp) of one round trip, where it is executed on the memory server, however many pages the key's chain
// has. C++20; link with -lfarside.
//
//   far:   pages of 4096 bytes; a key's chain begins at the page that its hash names, and has up to 4 neighbours
//   page:  count | whether a chain goes on to the next page | entries
//
//   farside::remote_hash_map<uint64_t, uint64_t> counts;
//   counts.insert(7, 1);
//   counts.update(7, [](uint64_t& count, uint64_t by) { count += by; }, uint64_t{5});
//   std::optional<uint64_t> count = counts.find(7);
//
// For large maps whose keys are used rarely: an entry takes its own size in far memory (pages are 35 to 70 % full) and
// none near. Maps with popular keys are better off with hash_map or far_hash_map, whose hot entries stay near. Keys and
// values are trivially copyable, and at most 1000 bytes together. Hash and Equal have no state.
//
// mode: as of offload::call; AUTOMATIC executes an operation in the program where that is expected to take less time,
// and where no server executes functions. Exceptions: std::system_error if a call fails (see offload::error);
// std::bad_alloc. If `written_undefined` is set in it, the map is to be dropped. Thread-safety: as std::unordered_map;
// find() is const. Growing copies all entries, in one call.
#ifndef FARSIDE_CONTAINERS_REMOTE_HASH_MAP_HPP
#define FARSIDE_CONTAINERS_REMOTE_HASH_MAP_HPP

#include <farside/offload.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace farside {

template <typename K, typename V, typename Hash = std::hash<K>, typename Equal = std::equal_to<K>>
class remote_hash_map {
  static_assert(std::is_trivially_copyable_v<K> && std::is_trivially_copyable_v<V>);
  static_assert(sizeof(K) + sizeof(V) <= 1000, "an entry is larger than a quarter of a page");
  static_assert(std::is_empty_v<Hash> && std::is_empty_v<Equal>);
  using mode = offload::mode;

 public:
  explicit remote_hash_map(size_t size = 0) { allocate(pages_for(size)); }
  remote_hash_map(remote_hash_map&& other) noexcept { swap(other); }
  remote_hash_map& operator=(remote_hash_map&& other) noexcept {
    swap(other);
    return *this;
  }
  ~remote_hash_map() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Bytes of far memory.
  size_t bytes() const { return (pages_ + kChain - 1) * sizeof(page); }

  std::optional<V> find(const K& key, mode where = mode::automatic) const {
    return offload::call(find_in, {chain(key), key}, range(key), {}, where).value();
  }
  // The values of many keys by one call.
  std::vector<std::optional<V>> find_all(const std::vector<K>& keys, mode where = mode::automatic) const {
    return offload::call(find_all_in, {{table_, pages_}, keys}, all(), {}, where).value();
  }
  // False, without an effect: the key exists.
  bool insert(const K& key, const V& value, mode where = mode::automatic) { return store(key, value, false, where); }
  // Whether the key is new.
  bool insert_or_assign(const K& key, const V& value, mode where = mode::automatic) {
    return store(key, value, true, where);
  }
  // change(value, argument), a lambda without captures, where the entry is. The new value, or none without the key.
  template <typename Change, typename A>
  std::optional<V> update(const K& key, Change, const A& argument, mode where = mode::automatic) {
    static_assert(std::is_empty_v<Change> && std::is_default_constructible_v<Change>, "the function has no captures");
    return offload::call(update_in<Change, A>, {{chain(key), key}, argument}, {}, range(key), where).value();
  }
  bool erase(const K& key, mode where = mode::automatic) {
    bool erased = offload::call(erase_in, {chain(key), key}, {}, range(key), where).value();
    size_ -= erased;
    return erased;
  }
  // For `size` entries without growing.
  void reserve(size_t size, mode where = mode::automatic) {
    if (pages_for(size) > pages_) grow(pages_for(size), where);
  }
  void swap(remote_hash_map& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(pages_, other.pages_);
    std::swap(size_, other.size_);
  }

 private:
  static constexpr size_t kChain = 4;  // pages
  struct entry {
    K key;
    V value;
  };
  static constexpr size_t kEntries = (4096 - 8 - alignof(entry) + 1) / sizeof(entry);
  struct alignas(4096) page {
    uint32_t count;
    uint32_t goes_on;  // an entry was stored on a later page because this one was full
    entry entries[kEntries];
  };
  static_assert(sizeof(page) == 4096);

  template <typename T>
  struct keyed {
    T* chain;
    K key;
  };
  struct table {
    page* first;
    size_t pages;
  };
  struct storing {
    keyed<page> where;
    V value;
    bool assigns;
  };
  enum class stored : uint8_t { added, assigned, exists, full };

  // ---- On the server, or in the program ----

  static page* home(const table& in, const K& key) {
    auto mixed = static_cast<uint64_t>(Hash()(key)) * 0x9e3779b97f4a7c15;
    return in.first + static_cast<size_t>(static_cast<unsigned __int128>(mixed) * in.pages >> 64);
  }
  template <typename Page>
  static auto* look_up(Page* chain, const K& key, Page** found_on = nullptr) {
    for (Page* at = chain; at < chain + kChain; at++) {
      for (auto* e = at->entries; e < at->entries + at->count; e++) {
        if (!Equal()(e->key, key)) continue;
        if (found_on) *found_on = at;
        return e;
      }
      if (!at->goes_on) break;
    }
    return static_cast<decltype(+chain->entries)>(nullptr);
  }
  static std::optional<V> find_in(const keyed<page>& a) {
    const entry* found = look_up<const page>(a.chain, a.key);
    return found ? std::optional<V>(found->value) : std::nullopt;
  }
  static std::vector<std::optional<V>> find_all_in(const std::pair<table, std::vector<K>>& a) {
    std::vector<std::optional<V>> values;
    values.reserve(a.second.size());
    for (const K& key : a.second) values.push_back(find_in({home(a.first, key), key}));
    return values;
  }
  static stored store_in(const storing& a) {
    if (entry* found = look_up(a.where.chain, a.where.key)) {
      if (a.assigns) found->value = a.value;
      return a.assigns ? stored::assigned : stored::exists;
    }
    return add(a.where.chain, {a.where.key, a.value}) ? stored::added : stored::full;
  }
  static bool add(page* chain, const entry& e) {
    page* at = chain;
    while (at < chain + kChain && at->count == kEntries) at++;
    if (at == chain + kChain) return false;
    for (page* passed = chain; passed < at; passed++) passed->goes_on = 1;
    at->entries[at->count++] = e;
    return true;
  }
  template <typename Change, typename A>
  static std::optional<V> update_in(const std::pair<keyed<page>, A>& a) {
    entry* found = look_up(a.first.chain, a.first.key);
    if (!found) return std::nullopt;
    Change()(found->value, a.second);
    return found->value;
  }
  static bool erase_in(const keyed<page>& a) {
    page* on = nullptr;
    entry* found = look_up(a.chain, a.key, &on);
    if (found) *found = on->entries[--on->count];
    return found != nullptr;
  }
  static bool copy_all(const std::pair<table, table>& a) {
    for (const page* p = a.first.first; p < a.first.first + a.first.pages + kChain - 1; p++) {
      for (const entry* e = p->entries; e < p->entries + p->count; e++) {
        if (!add(home(a.second, e->key), *e)) return false;
      }
    }
    return true;
  }

  // ---- In the program ----

  // At least 64 KiB, since smaller mappings are not far.
  static size_t pages_for(size_t size) { return std::max<size_t>(16, size * 10 / (7 * kEntries) + 1); }
  page* chain(const K& key) const { return home({table_, pages_}, key); }
  offload::ranges range(const K& key) const { return {{chain(key), kChain}}; }
  offload::ranges all() const { return {{table_, pages_ + kChain - 1}}; }

  bool store(const K& key, const V& value, bool assigns, mode where) {
    if (size_ * 10 >= pages_ * kEntries * 7) grow(2 * pages_, where);
    for (;;) {
      storing arguments = {{chain(key), key}, value, assigns};
      stored result = offload::call(store_in, arguments, {}, range(key), where).value();
      if (result != stored::full) {
        size_ += result == stored::added;
        return result == stored::added;
      }
      grow(2 * pages_, where);
    }
  }
  // Into a larger table, until all chains fit.
  void grow(size_t pages, mode where) {
    for (;; pages *= 2) {
      remote_hash_map larger(nullptr, pages);
      std::pair<table, table> tables = {{table_, pages_}, {larger.table_, pages}};
      if (!offload::call(copy_all, tables, all(), larger.all(), where).value()) continue;
      larger.size_ = size_;
      swap(larger);
      return;
    }
  }
  remote_hash_map(std::nullptr_t, size_t pages) { allocate(pages); }
  void allocate(size_t pages) {
    pages_ = pages;
    void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    table_ = static_cast<page*>(memory);
  }
  void release() {
    if (table_) munmap(table_, bytes());
  }

  page* table_ = nullptr;
  size_t pages_ = 0;
  size_t size_ = 0;
};

}  // namespace farside
#endif
