// All regions of a server: access to them by secret, their reservations, and when their memory is freed. A region
// exists while it has a connection or an overlay, and for a grace time after its last connection broke, so that its
// client can reconnect. Its memory is freed, and regions take the places of their bases, in pieces (tidy). Thread-safe.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string_view>

#include "base/random.h"
#include "base/status.h"
#include "base/sync.h"
#include "server/regions/region.h"

namespace farside::server {

class MemoryPool {
 public:
  // capacity: bytes for all regions together. quota: bytes for a region and its snapshots; 0: none. grace_ns: how long
  // a region is kept after its last connection broke. overflow: null, or adds a file to this capacity, which is in RAM.
  MemoryPool(uint64_t capacity, uint64_t quota, uint64_t grace_ns = 0, Compression compression = Compression::kOff,
             std::unique_ptr<Overflow> overflow = nullptr)
      : overflow_(std::move(overflow)),
        account_(overflow_ ? overflow_->capacity() : capacity),
        quota_(quota ? quota : Account::kUnlimited),
        grace_ns_(grace_ns),
        compression_(compression) {}

  // These return a region and count one more connection to it, until release().
  Result<Region*> create(uint64_t bytes, std::shared_ptr<Tenant> tenant = nullptr);
  Result<Region*> attach(uint64_t id, const uint8_t* secret);
  Result<Region*> snapshot(uint64_t id, const uint8_t* secret);
  // The secret of a region, or nothing if there is no such region.
  std::optional<std::array<uint8_t, wire::kSecretBytes>> secret_of(uint64_t id);
  // broken: the connection was not closed by the client in good order, so the grace time applies.
  void release(Region* region, bool broken = false);

  // Where the region's client comes from, for logs and metrics.
  void set_client(Region* region, const std::string& peer, const std::string& source);

  // The fence that is shared by all connections of this channel to the region.
  std::shared_ptr<Fence> fence(Region* region, uint64_t channel);

  // Releases the regions whose grace time has ended.
  void free_abandoned(uint64_t now);
  bool keeps_abandoned() const { return abandoned_count_.load() > 0; }

  // Does one piece of what is left to do after regions were released. Whether there is more. Without it nothing is
  // wrong, but freed memory stays charged and chains stay long.
  bool tidy();
  bool is_tidy() const { return disposal_.is_empty() && merging_count_.load() == 0; }

  // Compress cold pages of all regions, by one thread, in passes over all pages.
  void advance_epochs();
  void begin_pass();
  Packer::Progress pack_some();
  const Overflow* overflow() const { return overflow_.get(); }

  // Change the reservation by `bytes`, a multiple of the slab size, and return the new reservation. A sequence that is
  // not larger than the last one granted is a repetition, which changes nothing.
  Result<uint64_t> grow(Region* region, uint64_t bytes, uint64_t sequence);
  uint64_t shrink(Region* region, uint64_t bytes, uint64_t sequence);

  // What all regions together are charged to.
  Account* account() { return &account_; }
  // Of this server, by which clients that reach it at two addresses notice that it is one.
  uint64_t number() const { return number_; }

  struct Usage {
    uint64_t capacity, charged, overhead, stored, regions, snapshots;
    uint64_t packed;                       // bytes of pages that are compressed
    uint64_t zstd;                         // of these, by zstd
    uint64_t used;                         // memory that what is stored uses
    uint64_t overflow, overflow_capacity;  // bytes of pages in the overflow file, and its size
  };
  Usage usage();

  // What one region has, and what its client did.
  struct RegionUsage {
    uint64_t id;
    std::string source;
    uint64_t reserved, stored, requests;
  };
  std::vector<RegionUsage> regions();

 private:
  // What a call removed. Logged and destroyed after the locks are released, since both take long.
  struct Removed {
    struct Departure {
      std::string peer;
      uint64_t region, reserved, stored, requests, received, sent, ns;
    };
    std::vector<std::unique_ptr<Region>> regions;
    std::vector<Departure> departures;
    std::vector<RegionShare::Remains> shares;
    ~Removed();
  };

  struct Abandoned {
    Region* region;
    uint64_t until;
  };

  bool abandon(Region* region) REQUIRES(mutex_);
  void leave(Region* region);
  Region* find(uint64_t id, const uint8_t* secret) REQUIRES(mutex_);
  std::shared_ptr<Region::Family> family_of(uint64_t id, const uint8_t* secret, uint64_t* bytes);
  Region* add(std::unique_ptr<Region> region) REQUIRES(mutex_);
  void reap(Region* region, Removed* removed) REQUIRES(mutex_);
  void extract(Region* region, Removed* removed) REQUIRES(mutex_);
  void merge_some();
  template <typename Use>
  void use_packed(uint64_t id, Use use);
  void end_merge(Region* base, bool merged, Removed* removed);
  void settle_some() REQUIRES(mutex_);
  void settle(Region* region) REQUIRES(mutex_);
  Status full(const Account* account, const Tenant* tenant) const;
  Region::Name new_name() REQUIRES(mutex_);

  static constexpr unsigned kMaxSettled = 4096;  // regions, while others wait for the mutex

  const uint64_t number_ = random_u64();
  const std::unique_ptr<Overflow> overflow_;  // null: all is in RAM
  Account account_;
  Disposal disposal_;
  const uint64_t quota_;  // of a region and its snapshots
  const uint64_t grace_ns_;
  const Compression compression_;  // of regions that are made from now on
  std::vector<uint64_t> packing_;  // regions that this pass has not finished; used by the thread that packs

  Mutex mutex_;  // taken after any family lock
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::unique_ptr<Region>> regions_ GUARDED_BY(mutex_);
  uint64_t snapshots_ GUARDED_BY(mutex_) = 0;        // of regions_
  MemoryFile::Stored stored_ GUARDED_BY(mutex_);     // by regions_, as of when each was settled
  uint64_t settled_up_to_ GUARDED_BY(mutex_) = 0;    // identifier
  std::deque<uint64_t> merging_ GUARDED_BY(mutex_);  // bases; some may have ended
  std::atomic<size_t> merging_count_{0};
  // One for a region at most; it counts one connection, that which broke last.
  std::vector<Abandoned> abandoned_ GUARDED_BY(mutex_);
  std::atomic<size_t> abandoned_count_{0};
};

}  // namespace farside::server
