// The C functions for mutex, condition, wait group and channel. Each object is near memory with a lock and lists of the
// fibers that wait in it. A fiber that waits adds itself to a list and parks; the loop releases the lock when the fiber
// can be resumed. The destroy functions take the lock once, so that the last call of another fiber has left the object.
#include <cerrno>

#include "base/log.h"
#include "farside/fiber.h"
#include "fiber/worker.h"

using farside::LockGuard;
using farside::fibers::Call;
using farside::fibers::Fiber;
using farside::fibers::FiberList;
using farside::fibers::FiberLock;
using farside::fibers::make_ready;
using farside::fibers::park;
using farside::fibers::Waiting;

struct farside_fiber_mutex : farside::NearObject {
  FiberLock lock;
  Fiber* owner GUARDED_BY(lock) = nullptr;
  FiberList waiting GUARDED_BY(lock);
};

struct farside_fiber_condition : farside::NearObject {
  FiberLock lock;
  FiberList waiting GUARDED_BY(lock);
};

struct farside_fiber_group : farside::NearObject {
  FiberLock lock;
  int64_t count GUARDED_BY(lock) = 0;
  FiberList waiting GUARDED_BY(lock);
};

// A bounded queue in a ring. Invariant: receivers wait only while the ring is empty, senders only while it is full.
struct farside_fiber_channel : farside::NearObject {
  explicit farside_fiber_channel(size_t items)
      : capacity(items), ring(items ? static_cast<void**>(farside::near_alloc(items * sizeof(void*))) : nullptr) {}
  ~farside_fiber_channel() { farside::near_free(ring, capacity * sizeof(void*)); }

  FiberLock lock;
  const size_t capacity;
  void** const ring PT_GUARDED_BY(lock);
  size_t first GUARDED_BY(lock) = 0, count GUARDED_BY(lock) = 0;
  bool closed GUARDED_BY(lock) = false;
  FiberList senders GUARDED_BY(lock), receivers GUARDED_BY(lock);
};

namespace {

constexpr size_t kMaxCapacity = size_t{1} << 24;

template <typename T, typename... Args>
int create(T** made, Args... args) {
  farside::SignalsBlocked blocked;  // as the near allocator requires
  *made = new T(args...);
  return 0;
}

template <typename T>
void destroy(T* object) {
  farside::SignalsBlocked blocked;
  delete object;
}

void wake_all(FiberList* waiting, int result) {
  while (Fiber* fiber = waiting->pop()) {
    fiber->result = result;
    make_ready(fiber);
  }
}

// ---- mutex ----

int lock_mutex(farside_fiber_mutex* m, Fiber* self) {
  m->lock.lock();
  if (m->owner && m->owner != self) {
    m->waiting.push(self);
    park(Waiting::kMutex, &m->lock);  // unlock_mutex makes this fiber the owner before it wakes it
    return 0;
  }
  int result = m->owner ? -EDEADLK : 0;
  m->owner = self;
  m->lock.unlock();
  return result;
}

int unlock_mutex(farside_fiber_mutex* m, Fiber* self) {
  LockGuard guard(m->lock);
  if (m->owner != self) return -EPERM;
  m->owner = m->waiting.pop();
  if (m->owner) make_ready(m->owner);
  return 0;
}

// ---- channel ----

// For the last user of the channel, which needs no lock any more.
void discard_rest(farside_fiber_channel* c, void (*discard)(void*)) NO_THREAD_SAFETY_ANALYSIS {
  for (size_t i = 0; discard && i < c->count; i++) discard(c->ring[(c->first + i) % c->capacity]);
}

// False: the channel is full.
bool put(farside_fiber_channel* c, void* item) REQUIRES(c->lock) {
  if (Fiber* receiver = c->receivers.pop()) {
    receiver->item = item;
    receiver->result = 0;
    make_ready(receiver);
    return true;
  }
  if (c->count == c->capacity) return false;
  c->ring[(c->first + c->count++) % c->capacity] = item;
  return true;
}

// False: the channel is empty.
bool get(farside_fiber_channel* c, void** item) REQUIRES(c->lock) {
  Fiber* sender = nullptr;
  if (c->count == 0) {
    sender = c->senders.pop();  // a sender waits here only if the capacity is 0
    if (!sender) return false;
    *item = sender->item;
  } else {
    *item = c->ring[c->first];
    c->first = (c->first + 1) % c->capacity;
    c->count--;
    sender = c->senders.pop();
    if (sender) c->ring[(c->first + c->count++) % c->capacity] = sender->item;
  }
  if (sender) {
    sender->result = 0;
    make_ready(sender);
  }
  return true;
}

int send(farside_fiber_channel* c, void* item, bool may_wait) {
  Call call;
  if (!call) return -EPERM;
  c->lock.lock();
  bool done = !c->closed && put(c, item);
  if (c->closed || done || !may_wait) {
    int result = c->closed ? -EPIPE : done ? 0 : -EAGAIN;
    c->lock.unlock();
    return result;
  }
  call.fiber()->item = item;
  c->senders.push(call.fiber());
  park(Waiting::kChannel, &c->lock);
  return call.fiber()->result;
}

int receive(farside_fiber_channel* c, void** item, bool may_wait) {
  void* got = nullptr;  // *item may be far memory, which is not accessed inside a Call
  {
    Call call;
    if (!call) return -EPERM;
    c->lock.lock();
    bool done = get(c, &got);
    if (!done && !c->closed && may_wait) {
      c->receivers.push(call.fiber());
      park(Waiting::kChannel, &c->lock);
      if (call.fiber()->result < 0) return call.fiber()->result;
      got = call.fiber()->item;
    } else {
      int result = done ? 0 : c->closed ? -EPIPE : -EAGAIN;
      c->lock.unlock();
      if (result < 0) return result;
    }
  }
  *item = got;
  return 0;
}

}  // namespace

extern "C" {

int farside_fiber_mutex_create(farside_fiber_mutex** mutex) { return create(mutex); }

int farside_fiber_mutex_destroy(farside_fiber_mutex* m) {
  m->lock.lock();
  bool busy = m->owner;
  m->lock.unlock();
  if (busy) return -EBUSY;
  destroy(m);
  return 0;
}

int farside_fiber_mutex_lock(farside_fiber_mutex* m) {
  Call call;
  if (!call) return -EPERM;
  return lock_mutex(m, call.fiber());
}

int farside_fiber_mutex_trylock(farside_fiber_mutex* m) {
  Call call;
  if (!call) return -EPERM;
  LockGuard guard(m->lock);
  if (m->owner) return -EBUSY;
  m->owner = call.fiber();
  return 0;
}

int farside_fiber_mutex_unlock(farside_fiber_mutex* m) {
  Call call;
  return call ? unlock_mutex(m, call.fiber()) : -EPERM;
}

int farside_fiber_condition_create(farside_fiber_condition** condition) { return create(condition); }

int farside_fiber_condition_destroy(farside_fiber_condition* c) {
  c->lock.lock();
  bool busy = !c->waiting.empty();
  c->lock.unlock();
  if (busy) return -EBUSY;
  destroy(c);
  return 0;
}

int farside_fiber_condition_wait(farside_fiber_condition* c, farside_fiber_mutex* m) {
  Call call;
  if (!call) return -EPERM;
  c->lock.lock();
  if (int error = unlock_mutex(m, call.fiber())) {
    c->lock.unlock();
    return error;
  }
  c->waiting.push(call.fiber());
  park(Waiting::kCondition, &c->lock);
  return lock_mutex(m, call.fiber());
}

int farside_fiber_condition_signal(farside_fiber_condition* c) {
  Call call;
  if (!call) return -EPERM;
  LockGuard guard(c->lock);
  if (Fiber* fiber = c->waiting.pop()) make_ready(fiber);
  return 0;
}

int farside_fiber_condition_broadcast(farside_fiber_condition* c) {
  Call call;
  if (!call) return -EPERM;
  LockGuard guard(c->lock);
  wake_all(&c->waiting, 0);
  return 0;
}

int farside_fiber_group_create(farside_fiber_group** group) { return create(group); }

int farside_fiber_group_destroy(farside_fiber_group* g) {
  g->lock.lock();
  bool busy = !g->waiting.empty();
  g->lock.unlock();
  if (busy) return -EBUSY;
  destroy(g);
  return 0;
}

int farside_fiber_group_add(farside_fiber_group* g, int64_t count) {
  Call call;
  if (!call) return -EPERM;
  LockGuard guard(g->lock);
  int64_t sum = 0;
  if (__builtin_add_overflow(g->count, count, &sum) || sum < 0) return -EINVAL;
  g->count = sum;
  if (sum == 0) wake_all(&g->waiting, 0);
  return 0;
}

int farside_fiber_group_wait(farside_fiber_group* g) {
  Call call;
  if (!call) return -EPERM;
  g->lock.lock();
  if (g->count == 0) {
    g->lock.unlock();
    return 0;
  }
  g->waiting.push(call.fiber());
  park(Waiting::kGroup, &g->lock);
  return 0;
}

int farside_fiber_channel_create(farside_fiber_channel** channel, size_t capacity) {
  return capacity > kMaxCapacity ? -EINVAL : create(channel, capacity);
}

int farside_fiber_channel_destroy(farside_fiber_channel* c, void (*discard)(void*)) {
  c->lock.lock();
  bool busy = !c->senders.empty() || !c->receivers.empty();
  c->lock.unlock();
  if (busy) return -EBUSY;
  discard_rest(c, discard);
  destroy(c);
  return 0;
}

int farside_fiber_channel_send(farside_fiber_channel* c, void* item) { return send(c, item, true); }
int farside_fiber_channel_try_send(farside_fiber_channel* c, void* item) { return send(c, item, false); }
int farside_fiber_channel_receive(farside_fiber_channel* c, void** item) { return receive(c, item, true); }
int farside_fiber_channel_try_receive(farside_fiber_channel* c, void** item) { return receive(c, item, false); }

int farside_fiber_channel_close(farside_fiber_channel* c) {
  Call call;
  if (!call) return -EPERM;
  LockGuard guard(c->lock);
  c->closed = true;
  wake_all(&c->senders, -EPIPE);
  wake_all(&c->receivers, -EPIPE);
  return 0;
}

}  // extern "C"
