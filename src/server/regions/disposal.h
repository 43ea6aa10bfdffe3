// Memory of regions that ended or were given up: it is freed in pieces, since the kernel needs long for large files. It
// stays charged until it is freed. Thread-safe.
#pragma once
#include <atomic>
#include <list>
#include <memory>

#include "base/sync.h"
#include "server/memory/memory_file.h"
#include "server/regions/account.h"

namespace farside::server {

class Disposal {
 public:
  // owner: keeps the account.
  void add(MemoryFile memory, std::shared_ptr<const void> owner, Account* account, uint64_t charged);
  // One piece. Whether there are more.
  bool free_some();
  bool is_empty() const { return count_.load() == 0; }

 private:
  struct Disposed {
    MemoryFile memory;
    std::shared_ptr<const void> owner;
    Account* account;
    uint64_t charged;
  };

  Mutex mutex_;  // no other lock is taken while it is held
  std::list<Disposed> disposed_ GUARDED_BY(mutex_);
  std::atomic<size_t> count_{0};  // of regions, those included that a thread is working on
};

}  // namespace farside::server
