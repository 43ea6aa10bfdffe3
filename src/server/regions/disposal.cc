#include "server/regions/disposal.h"

#include <algorithm>
#include <utility>

#include "server/regions/piece.h"

namespace farside::server {

void Disposal::add(MemoryFile memory, std::shared_ptr<const void> owner, Account* account, uint64_t charged) {
  uint64_t due = std::min(charged, memory.stored_bytes());
  account->correct(charged, due);
  count_++;
  LockGuard hold(mutex_);
  disposed_.push_back({std::move(memory), std::move(owner), account, due});
}

bool Disposal::free_some() {
  std::list<Disposed> taken;
  {
    LockGuard hold(mutex_);
    if (disposed_.empty()) return false;
    taken.splice(taken.begin(), disposed_, disposed_.begin());
  }
  Disposed& disposed = taken.front();
  bool more = disposed.memory.free_some(Visits{}.limit * wire::kPageBytes);
  uint64_t due = more ? std::min(disposed.charged, disposed.memory.stored_bytes()) : 0;
  disposed.account->correct(std::exchange(disposed.charged, due), due);
  if (!more) {
    taken.clear();
    return --count_ > 0;
  }
  LockGuard hold(mutex_);
  disposed_.splice(disposed_.end(), taken);
  return true;
}

}  // namespace farside::server
