#include "objects/structures.h"

#include <cerrno>

#include "abi/options.h"

namespace farside::objects {

int Structures::create(const farside_structure_options& options) {
  PolicyKind policy;
  if (options.capacity == 0 || (options.policy && !policy_from_name(options.policy, &policy))) return -EINVAL;
  size_t bytes = 2 * align_up(options.capacity, SegmentPool::kChunkBytes);
  LockGuard guard(mutex_);
  unsigned number = count();
  if (number == kMax) return -ENOSPC;
  std::byte* arena = pager_.addresses().reserve(bytes, kPageSize);
  if (!arena) return -ENOMEM;
  Status ruled = options.policy ? pager_.addresses().add_region(arena, bytes, policy) : Status();
  if (!ruled.ok()) {
    pager_.addresses().release(arena, bytes);
    return -ruled.code();
  }
  auto made = std::make_unique<Structure>(pager_, table_);
  made->pool.use_only(arena, bytes);
  made->tracks_evictions = options.track_evictions != 0;
  all_[number] = std::move(made);
  count_.store(number + 1, std::memory_order_release);
  return static_cast<int>(number);
}

// Waits for calls in progress.
int Structures::set_handler(unsigned number, farside_eviction_handler* function, void* context) {
  if (number == 0 || number >= count() || all_[number]->tracks_evictions) return -EINVAL;
  Structure& structure = *all_[number];
  LockGuard guard(structure.handler.mutex);
  if (function && !structure.pool.guard(number)) return -EBUSY;
  structure.handler.function = function;
  structure.handler.context = context;
  structure.handler.is_set.store(function != nullptr, std::memory_order_release);
  return 0;
}

uint64_t Structures::segments() const {
  uint64_t sum = 0;
  for (unsigned i = 0; i < count(); i++) sum += all_[i]->pool.in_use();
  return sum;
}

bool Structures::moves_are_stopped() const {
  for (unsigned i = 0; i < count(); i++) {
    if (all_[i]->moves.has_calls()) return true;
  }
  return false;
}

void Structures::lock() {
  mutex_.lock();
  for (unsigned i = 0; i < count(); i++) all_[i]->pool.lock();
}

void Structures::unlock() {
  for (unsigned i = count(); i > 0; i--) all_[i - 1]->pool.unlock();
  mutex_.unlock();
}

void Structures::reset_in_child(uint64_t stopped) {
  for (unsigned i = 0; i < count(); i++) all_[i]->moves.reset_in_child(stopped >> i & 1);
}

}  // namespace farside::objects
