// The store of kv_server: items of fixed size in one array, chained from buckets, as in one size class of memcached.
// Locks are those of fibers, striped over the buckets, so a fiber that waits for far memory delays only its stripe.
// Thread-safe; called by fibers only.
#pragma once
#include <farside/fiber.hpp>

#include <atomic>
#include <mutex>

#include "app.h"

namespace farside::apps {

class Store {
 public:
  static constexpr size_t kMaxKey = 40, kMaxValue = 512;

  explicit Store(uint64_t bytes)
      : capacity_(capacity_for(bytes)),
        buckets_(make_array<uint32_t>(capacity_)),
        items_(make_array<Item>(capacity_)),
        locks_(kStripes) {
    memset(buckets_.get(), 0, capacity_ * sizeof(uint32_t));
  }

  // Copies the value into `value`, which has room for kMaxValue bytes, and returns its length; -1: no such key.
  int get(std::string_view key, char* value) {
    uint64_t hash = hash_of(key);
    std::lock_guard guard(lock_of(hash));
    const Item* item = find(hash, key);
    if (!item) return -1;
    memcpy(value, item->data + item->key_bytes, item->value_bytes);
    return item->value_bytes;
  }

  // False: the store is full.
  bool set(std::string_view key, std::string_view value) {
    uint64_t hash = hash_of(key);
    std::lock_guard guard(lock_of(hash));
    Item* item = find(hash, key);
    if (!item && !(item = insert(hash, key))) return false;
    hint(item, sizeof *item, FARSIDE_WRITE);
    item->value_bytes = static_cast<uint16_t>(value.size());
    memcpy(item->data + item->key_bytes, value.data(), value.size());
    return true;
  }

  // The number of keys that a store of this size holds.
  static uint64_t capacity_for(uint64_t bytes) { return bytes / (sizeof(Item) + sizeof(uint32_t)); }

 private:
  struct Item {
    uint64_t hash;
    uint32_t next;  // number + 1 of the next item of its bucket; 0: none
    uint16_t key_bytes, value_bytes;
    char data[kMaxKey + kMaxValue];  // key, value
  };
  static constexpr unsigned kStripes = 1024;

  uint64_t bucket_of(uint64_t hash) const { return hash % capacity_; }
  mutex& lock_of(uint64_t hash) { return locks_[bucket_of(hash) % kStripes]; }

  Item* find(uint64_t hash, std::string_view key) {
    uint32_t& bucket = buckets_[bucket_of(hash)];
    hint(&bucket, sizeof bucket, FARSIDE_READ);
    for (uint32_t number = bucket; number != 0;) {
      Item& item = items_[number - 1];
      hint(&item, sizeof item, FARSIDE_READ);
      if (item.hash == hash && std::string_view(item.data, item.key_bytes) == key) return &item;
      number = item.next;
    }
    return nullptr;
  }

  Item* insert(uint64_t hash, std::string_view key) {
    uint64_t number = used_.fetch_add(1);
    if (number >= capacity_) {
      used_.fetch_sub(1);
      return nullptr;
    }
    uint32_t& bucket = buckets_[bucket_of(hash)];
    Item& item = items_[number];
    item.hash = hash;
    item.next = bucket;
    item.key_bytes = static_cast<uint16_t>(key.size());
    memcpy(item.data, key.data(), key.size());
    bucket = static_cast<uint32_t>(number + 1);
    return &item;
  }

  uint64_t capacity_;
  Array<uint32_t> buckets_;
  Array<Item> items_;
  std::atomic<uint64_t> used_{0};
  std::vector<mutex> locks_;
};

}  // namespace farside::apps
