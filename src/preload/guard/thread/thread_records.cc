#include "preload/guard/thread/thread_records.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/near.h"
#include "base/os.h"
#include "base/sync.h"
#include "base/thread_storage.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"
#include "preload/heap/far_heap.h"

namespace farside::preload {
namespace {

constexpr size_t kMaxRecords = 16384;
SpinLock g_record_lock;  // guards changes of g_records and g_record_count, and the assignment of records
ThreadRecord* g_records = nullptr;
size_t g_record_count = 0;

void release(ThreadRecord::Range& range) {
  if (range.address) guard_pager()->paging().unpin(std::exchange(range.address, nullptr), range.bytes);
}

// Also a process that shares this one's memory has a record.
bool is_free(const ThreadRecord& record) {
  int tid = record.tid.load();
  return tid == 0 || (tid > 0 && os::call(SYS_tkill, tid, 0) == -ESRCH);
}

// A free record. What threads kept that have disappeared becomes evictable.
ThreadRecord* find_free_record() REQUIRES(g_record_lock) {
  ThreadRecord* found = nullptr;
  for (size_t i = 0; i < g_record_count; i++) {
    ThreadRecord& record = g_records[i];
    bool keeps = false;
    for (const ThreadRecord::Range& range : record.kept) keeps |= range.address != nullptr;
    if ((found && !keeps) || !is_free(record)) continue;
    for (ThreadRecord::Range& range : record.kept) release(range);
    if (!found) found = &record;
  }
  return found;
}

// libc's allocator is free: the program does not use it, and the caller holds the lock.
void make_storage(ThreadRecord* record) REQUIRES(g_record_lock) {
  NearScope near;
  if (record->storage) free_thread_storage(record->storage);
  record->storage = make_thread_storage();
  if (!record->storage) die("out of memory: no thread-local storage for a new thread");
}

// Few of the records are ever touched. So they are not counted as near memory, as near_alloc() would do.
ThreadRecord* make_records() {
  auto* records = static_cast<ThreadRecord*>(os::map_near(kMaxRecords * sizeof(ThreadRecord)));
  if (!records) die("out of memory: no addresses for the records of threads");
  return records;
}

}  // namespace

ThreadRecord* take_record() {
  SignalsBlocked blocked;
  LockGuard guard(g_record_lock);
  if (!g_records) g_records = make_records();
  ThreadRecord* record = find_free_record();
  if (!record) {
    if (g_record_count == kMaxRecords)
      die("the program has more than {} threads, which Farside does not support", kMaxRecords);
    record = &g_records[g_record_count];
    record->stack = static_cast<std::byte*>(os::map_near(kSignalStackBytes));
    if (!record->stack) die("out of memory: no signal stack for a new thread");
    g_record_count++;
  }
  record->tid.store(-1);
  if (is_static_program()) make_storage(record);
  return record;
}

OwnStorage* make_own_storage(ThreadRecord* record, uint64_t thread_pointer) {
  SignalsBlocked blocked;
  LockGuard guard(g_record_lock);
  return farside::make_own_storage(static_cast<size_t>(record - g_records), kMaxRecords, thread_pointer);
}

void use_record(ThreadRecord* record) {
  record->tid.store(os::gettid());
  this_guard().stack_low = reinterpret_cast<uint64_t>(record->stack);
  this_guard().stack_high = this_guard().stack_low + kSignalStackBytes;
  use_alternate_stack(true);
}

ThreadRecord* own_record() {
  for (size_t i = 0; i < g_record_count; i++) {
    if (reinterpret_cast<uint64_t>(g_records[i].stack) == this_guard().stack_low) return &g_records[i];
  }
  return nullptr;
}

void keep_near(ThreadRecord* record, Kept purpose, uint64_t address, uint64_t bytes) {
  if (!record) return;
  ThreadRecord::Range& range = record->kept[static_cast<size_t>(purpose)];
  release(range);
  auto* begin = reinterpret_cast<void*>(address);
  if (!is_far(begin)) return;
  range.bytes = guard_pager()->paging().pin(begin, bytes, true);
  if (range.bytes > 0) range.address = begin;
}

void keep_thread_storage(ThreadRecord* record, uint64_t stack_pointer, uint64_t thread_pointer) {
  constexpr uint64_t kThreadDescriptor = 4096;  // libc's struct pthread begins at the thread pointer
  constexpr uint64_t kMax = 1024 * 1024;
  if (!is_far(reinterpret_cast<void*>(thread_pointer))) return;
  uint64_t begin = align_down(stack_pointer - 1, kPageSize), end = thread_pointer + kThreadDescriptor;
  if (begin > thread_pointer || end - begin > kMax) begin = align_down(thread_pointer - 16 * kPageSize, kPageSize);
  keep_near(record, Kept::kStorage, begin, end - begin);
}

namespace {

// Keeps the pages near that the kernel reads and writes for one mutex. Beyond the ranges of a record they are the most
// recently used ones.
class RobustPages {
 public:
  explicit RobustPages(ThreadRecord* record) : record_(record) {}
  void add(uint64_t address, uint64_t bytes) {
    if (!is_far(reinterpret_cast<void*>(address))) return;
    size_t purpose = next_ < ThreadRecord::kRanges ? next_++ : ThreadRecord::kRanges - 1;
    keep_near(record_, static_cast<Kept>(purpose), address, bytes);
  }

 private:
  ThreadRecord* record_;
  size_t next_ = static_cast<size_t>(Kept::kRobust);
};

}  // namespace

void keep_robust_list_near() {
  constexpr unsigned kLimit = 2048;  // as the kernel's
  robust_list_head* head = nullptr;
  size_t bytes = 0;
  ThreadRecord* record = own_record();
  if (!record || os::call(SYS_get_robust_list, 0, &head, &bytes) < 0 || !head) return;
  RobustPages pages(record);
  pages.add(reinterpret_cast<uint64_t>(head), sizeof *head);
  auto add_entry = [&](const robust_list* entry) {
    auto address = reinterpret_cast<uint64_t>(entry) & ~uint64_t{1};  // bit 0: inherits priority
    pages.add(address, sizeof *entry);
    pages.add(address + static_cast<uint64_t>(head->futex_offset), sizeof(uint32_t));
    return reinterpret_cast<const robust_list*>(address);
  };
  if (head->list_op_pending) add_entry(head->list_op_pending);
  const robust_list* entry = head->list.next;
  for (unsigned i = 0; i < kLimit && entry && entry != &head->list; i++) entry = add_entry(entry)->next;
}

// Not analyzed: between the two is a fork.
void lock_thread_records() NO_THREAD_SAFETY_ANALYSIS { g_record_lock.lock(); }
void unlock_thread_records() NO_THREAD_SAFETY_ANALYSIS { g_record_lock.unlock(); }

// The child's pager has no pins.
void keep_own_record_in_child() {
  for (size_t i = 0; i < g_record_count; i++) {
    ThreadRecord& record = g_records[i];
    bool own = reinterpret_cast<uint64_t>(record.stack) == this_guard().stack_low;
    record.tid.store(own ? os::gettid() : 0);
    for (ThreadRecord::Range& range : record.kept) {
      void* address = std::exchange(range.address, nullptr);
      if (!own || !address) continue;
      range.bytes = guard_pager()->paging().pin(address, range.bytes, true);
      range.address = range.bytes > 0 ? address : nullptr;
    }
  }
}

}  // namespace farside::preload
