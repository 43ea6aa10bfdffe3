#include "pager/thread/thread_slot.h"

#include <sys/syscall.h>

#include <cerrno>

#include "base/log.h"
#include "base/os.h"
#include "base/thread_storage.h"

namespace farside::pager {
namespace {
// initial-exec: the library is loaded at program start, so the variable is in static TLS and reading it never calls
// the dynamic linker. One pager for each process; tests that create several use them one after the other.
struct Attachment {
  ThreadSlot* slot;
  ThreadRegistry* registry;
};
__attribute__((tls_model("initial-exec"))) thread_local Attachment t_attachment = {};
Attachment& attachment() { return of_this_thread(t_attachment); }

// A process that shares this one's memory (CLONE_VM) has slots too.
bool is_gone(int tid) { return os::call(SYS_tkill, tid, 0) == -ESRCH; }
}  // namespace

ThreadSlot& ThreadRegistry::current() {
  ThreadSlot* slot = attached();
  return slot ? *slot : attach();
}

ThreadSlot* ThreadRegistry::attached() {
  const Attachment& here = attachment();
  return here.registry == this ? here.slot : nullptr;
}

ThreadSlot* ThreadRegistry::reuse() {
  size_t count = count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; i++) {
    if (slots_[i]->tid.load(std::memory_order_acquire) == 0) return slots_[i];
  }
  return nullptr;
}

// Searches for slots of threads that ended without detach(): raw clone, faults in late destructors.
void ThreadRegistry::sweep() {
  for_each([&](ThreadSlot& slot) {
    int tid = slot.tid.load();
    // Pages of reads in flight may be awaited: a waiting thread completes the read, and a later sweep frees the slot.
    if (tid != 0 && is_gone(tid) && !slot.reads.is_reading()) vacate(slot);
  });
}

ThreadSlot& ThreadRegistry::attach() {
  SignalsBlocked blocked;
  LockGuard guard(lock_);
  ThreadSlot* slot = reuse();
  if (!slot && count_.load() % 32 == 31) {
    sweep();
    slot = reuse();
  }
  if (!slot) {
    size_t count = count_.load(std::memory_order_relaxed);
    if (count == kMaxThreads)
      die("more than {} threads use far memory at the same time; Farside supports no more", kMaxThreads);
    slot = new ThreadSlot;
    slot->index = static_cast<uint16_t>(count);
    slots_[count] = slot;
    count_.store(count + 1, std::memory_order_release);
  }
  FARSIDE_CHECK(slot->tid.load(std::memory_order_relaxed) == 0 && !slot->reads.is_reading());
  slot->prefetcher = Prefetcher();
  slot->depth.store(0, std::memory_order_relaxed);
  slot->tid.store(os::gettid(), std::memory_order_release);
  attachment() = {slot, this};
  return *slot;
}

void ThreadRegistry::vacate(ThreadSlot& slot) {
  FARSIDE_DCHECK(slot.depth.load(std::memory_order_relaxed) == 0);
  slot.reads.close(store_);
  reclaim_spare(slot);
  slot.tid.store(0, std::memory_order_release);
}

void ThreadRegistry::reclaim_spare(ThreadSlot& slot) {
  if (uint32_t spare = slot.spare_frames.take_all()) frames_.give(spare);
}

void ThreadRegistry::detach() {
  ThreadSlot* slot = attached();
  if (!slot) return;
  SignalsBlocked blocked;
  attachment().slot = nullptr;
  vacate(*slot);
}

void ThreadRegistry::close_channels() {
  for_each([&](ThreadSlot& slot) { vacate(slot); });
  if (attached()) attachment().slot = nullptr;
}

void ThreadRegistry::reset_in_child() {
  ThreadSlot* self = attached();
  for_each([&](ThreadSlot& slot) {
    slot.reads.reset_in_child();
    slot.counters.clear();
    slot.fault_times.clear();
    slot.frame_waits.clear();
    slot.pinned.store(0);
    reclaim_spare(slot);
    if (&slot == self) {
      slot.tid.store(os::gettid());
      return;
    }
    slot.depth.store(0);
    slot.tid.store(0);
  });
}

void Gate::shut(ThreadRegistry& threads, ThreadSlot& self) {
  mutex_.lock();
  FARSIDE_CHECK(!shut_.load(std::memory_order_relaxed) && owner_.load(std::memory_order_relaxed) == 0);
  owner_.store(self.index + 1u);
  shut_.store(true, std::memory_order_seq_cst);
  threads.for_each([&](ThreadSlot& t) {
    if (&t == &self) return;
    for (unsigned spins = 0; t.depth.load(std::memory_order_seq_cst) != 0; spins++) {
      if (spins < 1000) cpu_relax();
      else os::nanosleep_ns(20000);
    }
  });
}

void Gate::open() {
  FARSIDE_CHECK(shut_.load(std::memory_order_relaxed));
  owner_.store(0);
  shut_.store(false, std::memory_order_seq_cst);
  opened_.wake_all();
  mutex_.unlock();
}

}  // namespace farside::pager
