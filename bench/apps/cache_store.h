// What `cache` keeps its values in: blobs of any length up to 1024 bytes by key. StdBlobs: std::unordered_map and
// std::string. FarBlobs: one farside::hash_map for each class of sizes, as memcached has slab classes; only the index
// of near words says in which of them a key is, so no class is fetched in vain.
#pragma once
#include <farside/fiber.hpp>

#include <mutex>

#include "kinds.h"

namespace farside::apps {

struct Key {
  char text[24] = {};  // with zeros behind the last character
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const { return hash_of({key.text, sizeof key.text}); }
};

inline constexpr size_t kMaxBlob = 1024;

class StdBlobs {
 public:
  bool get(const Key& key, std::string* value) const {
    size_t bucket = blobs_.bucket(key);
    for (auto at = blobs_.begin(bucket); at != blobs_.end(bucket); ++at) {
      hint(&*at, sizeof *at, FARSIDE_READ);
      if (at->first != key) continue;
      hint(at->second.data(), at->second.size(), FARSIDE_READ);
      return *value = at->second, true;
    }
    return false;
  }
  void set(const Key& key, std::string_view value) { blobs_[key] = value; }
  bool erase(const Key& key) { return blobs_.erase(key) > 0; }

 private:
  std::unordered_map<Key, std::string, KeyHash> blobs_;
};

// Blobs of up to `most` bytes.
template <size_t most>
class FarClass {
 public:
  bool get(const Key& key, std::string* value) const {
    deref_scope scope;
    const Blob* blob = blobs_.get(key, scope);
    if (blob) value->assign(blob->bytes, blob->length);
    return blob;
  }
  // False: the value belongs in another class, and is not in this one any more.
  bool set(const Key& key, std::string_view value, bool fits) {
    if (!fits) return blobs_.erase(key), false;
    deref_scope scope;
    blobs_.try_emplace(key);
    Blob* blob = blobs_.get_mut(key, scope);
    blob->length = static_cast<uint32_t>(value.size());
    memcpy(blob->bytes, value.data(), value.size());
    return true;
  }
  bool erase(const Key& key) { return blobs_.erase(key) > 0; }

 private:
  struct Blob {
    uint32_t length;
    char bytes[most];
  };
  hash_map<Key, Blob, KeyHash> blobs_;
};

class FarBlobs {
 public:
  bool get(const Key& key, std::string* value) const {
    return small_.get(key, value) || middle_.get(key, value) || large_.get(key, value);
  }
  void set(const Key& key, std::string_view value) {
    small_.set(key, value, value.size() <= 64);
    middle_.set(key, value, value.size() > 64 && value.size() <= 256);
    large_.set(key, value, value.size() > 256);
  }
  bool erase(const Key& key) { return small_.erase(key) || middle_.erase(key) || large_.erase(key); }

 private:
  FarClass<64> small_;
  FarClass<256> middle_;
  FarClass<kMaxBlob> large_;
};

// Thread-safe; called by fibers only. A fiber that waits for far memory delays only its part of the keys.
template <typename Kind>
class CacheStore {
 public:
  bool get(const Key& key, std::string* value) {
    Shard& shard = shard_of(key);
    std::lock_guard guard(shard.lock);
    return shard.blobs.get(key, value);
  }
  void set(const Key& key, std::string_view value) {
    Shard& shard = shard_of(key);
    std::lock_guard guard(shard.lock);
    shard.blobs.set(key, value);
  }
  bool erase(const Key& key) {
    Shard& shard = shard_of(key);
    std::lock_guard guard(shard.lock);
    return shard.blobs.erase(key);
  }

 private:
  struct Shard {
    mutex lock;
    std::conditional_t<std::is_same_v<Kind, FarKind>, FarBlobs, StdBlobs> blobs;
  };
  // By other bits of the hash than the maps take first.
  Shard& shard_of(const Key& key) { return shards_[mix(KeyHash()(key)) % kShards]; }

  static constexpr unsigned kShards = 256;
  std::vector<Shard> shards_{kShards};
};

}  // namespace farside::apps
