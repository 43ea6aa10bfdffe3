// Committed memory is reserved on the server beforehand, so that a full server makes malloc return ENOMEM instead of
// ending the program later: the server must be able to store everything.
//
// Thread-safe. Callers have signals blocked. Most calls cost a lock; every few hundred MiB the server is asked.
#pragma once
#include <algorithm>

#include "base/sync.h"
#include "remote/remote_store.h"

namespace farside::pager {

class FarCharge {
 public:
  explicit FarCharge(remote::RemoteStore* store) : store_(store) {}

  // A range of far memory from `offset` on becomes part of an allocation. ENOMEM: far memory is full.
  Status charge(uint64_t offset, size_t bytes);
  void uncharge(uint64_t offset, size_t bytes);
  // Whether a charge of so much needs more than a slab of the server, which is connected to then
  // (StoreConfig::deferred).
  bool asks_server(size_t bytes) {
    LockGuard guard(mutex_);
    return charged_ + bytes > std::max(reserved_, remote::kSlabBytes);
  }

  // No charge changes meanwhile, for a fork.
  void lock() ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() RELEASE(mutex_) { mutex_.unlock(); }

 private:
  static constexpr uint64_t kMaxAhead = 4 * remote::kSlabBytes;
  uint64_t ahead() const REQUIRES(mutex_);

  remote::RemoteStore* store_;
  Mutex mutex_;
  uint64_t charged_ GUARDED_BY(mutex_) = 0;
  uint64_t reserved_ GUARDED_BY(mutex_) = 0;
};

}  // namespace farside::pager
