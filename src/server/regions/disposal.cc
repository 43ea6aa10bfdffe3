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
  entries_.push_back({std::move(memory), std::move(owner), account, due});
}

bool Disposal::free_some() {
  std::list<Entry> taken;
  {
    LockGuard hold(mutex_);
    if (entries_.empty()) return false;
    taken.splice(taken.begin(), entries_, entries_.begin());
  }
  Entry& entry = taken.front();
  bool more = entry.memory.free_some(Visits{}.limit * wire::kPageBytes);
  uint64_t due = more ? std::min(entry.charged, entry.memory.stored_bytes()) : 0;
  entry.account->correct(std::exchange(entry.charged, due), due);
  if (!more) {
    taken.clear();
    return --count_ > 0;
  }
  LockGuard hold(mutex_);
  entries_.splice(entries_.end(), taken);
  return true;
}

}  // namespace farside::server
