#include "fiber/peer.h"

#include "farside/scope_state.h"

namespace farside::fibers {

constexpr size_t kMaxStolen = 32;

void RunQueue::push(Fiber* fiber) {
  LockGuard guard(lock_);
  bool in_scope = fiber->scopes && fiber->scopes->depth > 0;
  (in_scope ? in_scope_ : others_).push(fiber);
  size_.store(size_.load(std::memory_order_relaxed) + 1);
}

Fiber* RunQueue::pop(bool in_turn) {
  if (size_.load(std::memory_order_relaxed) == 0) return nullptr;
  LockGuard guard(lock_);
  Fiber* fiber = (in_turn ? others_ : in_scope_).pop();
  if (!fiber) fiber = (in_turn ? in_scope_ : others_).pop();
  if (fiber) size_.store(size_.load(std::memory_order_relaxed) - 1);
  return fiber;
}

void RunQueue::give_half(FiberList* to) {
  if (size() == 0 || !lock_.try_lock()) return;
  size_t have = size_.load(std::memory_order_relaxed);
  size_t give = (have + 1) / 2 < kMaxStolen ? (have + 1) / 2 : kMaxStolen;
  for (size_t i = 0; i < give; i++) {
    Fiber* fiber = others_.pop();
    to->push(fiber ? fiber : in_scope_.pop());
  }
  size_.store(have - give);
  lock_.unlock();
}

void Sleeper::begin(bool on_sockets) {
  seen_ = wakeup_.value();
  sleep_.store(on_sockets ? Sleep::kOnSockets : Sleep::kOnEvent);
}

bool Sleeper::wake(Sockets& sockets) {
  if (sleep_.load() == Sleep::kAwake) return false;
  Sleep before = sleep_.exchange(Sleep::kAwake);
  if (before == Sleep::kAwake) return false;
  if (before == Sleep::kOnSockets) sockets.interrupt();
  else wakeup_.wake_all();
  return true;
}

}  // namespace farside::fibers
