#include "preload/guard/calls/futexes.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include <cerrno>

#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/calls/syscall_table.h"

namespace farside::preload {
namespace {

constexpr int kTries = 100;
constexpr size_t kMaxWords = 128;  // of futex_waitv

struct Waiter {  // struct futex_waitv
  uint64_t value, address;
  uint32_t flags, reserved;
};
static_assert(sizeof(Waiter) == 24);

// The words of a call, which the kernel reads or writes.
struct Words {
  const std::byte* at[kMaxWords];
  size_t count = 0;
  void add(uint64_t address) { at[count++] = reinterpret_cast<const std::byte*>(address); }
};

// Brings a word near; one in read-only memory can still be waited on.
void touch_word(const Call& call, const std::byte* word) {
  Pins pins(call.stack_pointer);
  if (!pins.add(word, sizeof(uint32_t), true)) pins.add(word, sizeof(uint32_t), false);
}

bool is_gone(const std::byte* word) {
  return is_far(word) && !guard_pager()->addresses().is_committed(word, kPageSize);
}

// A word was evicted before the kernel read it. EFAULT is right if one is no longer mapped.
bool may_repeat(const Words& words) {
  bool far = false;
  for (size_t i = 0; i < words.count; i++) {
    if (is_gone(words.at[i])) return false;
    far |= is_far(words.at[i]);
  }
  return far;
}

// Repeated so often, the fault must have another cause: a timeout that cannot be read.
long issue_with_words(const Call& call, const Words& words) {
  for (int tries = 0;; tries++) {
    for (size_t i = 0; i < words.count; i++) touch_word(call, words.at[i]);
    long r = issue(call);
    if (r != -EFAULT || tries == kTries || !may_repeat(words)) return r;
  }
}

long classic_futex(const Call& call) {
  auto operation = static_cast<int>(call.arg[1]) & FUTEX_CMD_MASK;
  bool has_second = operation == FUTEX_REQUEUE || operation == FUTEX_CMP_REQUEUE || operation == FUTEX_WAKE_OP ||
                    operation == FUTEX_WAIT_REQUEUE_PI || operation == FUTEX_CMP_REQUEUE_PI;
  bool has_timeout = operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI ||
                     operation == FUTEX_WAIT_REQUEUE_PI || operation == FUTEX_LOCK_PI2;
  Words words;
  words.add(static_cast<uint64_t>(call.arg[0]));
  if (has_second) words.add(static_cast<uint64_t>(call.arg[4]));
  Pins timeout(call.stack_pointer);
  if (has_timeout) timeout.add(reinterpret_cast<void*>(call.arg[3]), sizeof(timespec), false);
  return issue_with_words(call, words);
}

// futex_waitv and futex_requeue: a list of waiters, of which the kernel gets a copy.
long list_call(const Call& call, size_t count, int timeout_arg) {
  Waiter copy[kMaxWords];
  if (count == 0 || count > kMaxWords) return issue(call);
  auto* list = reinterpret_cast<const Waiter*>(call.arg[0]);
  if (!is_readable(list, count * sizeof(Waiter), call.stack_pointer)) return issue(call);
  Words words;
  for (size_t i = 0; i < count; i++) {
    copy[i] = list[i];
    words.add(copy[i].address);
  }
  Call near = call;
  near.arg[0] = reinterpret_cast<long>(copy);
  Pins timeout(call.stack_pointer);
  if (timeout_arg > 0) timeout.add(reinterpret_cast<void*>(call.arg[timeout_arg]), sizeof(timespec), false);
  return issue_with_words(near, words);
}

long word_call(const Call& call) {
  Words words;
  words.add(static_cast<uint64_t>(call.arg[0]));
  Pins timeout(call.stack_pointer);
  if (call.number == call_number::futex_wait)
    timeout.add(reinterpret_cast<void*>(call.arg[4]), sizeof(timespec), false);
  return issue_with_words(call, words);
}

}  // namespace

bool futex_call(const Call& call, long* result) {
  switch (call.number) {
    case SYS_futex:
      *result = classic_futex(call);
      return true;
    case call_number::futex_waitv:
      *result = list_call(call, static_cast<unsigned>(call.arg[1]), 3);
      return true;
    case call_number::futex_requeue:
      *result = list_call(call, 2, 0);
      return true;
    case call_number::futex_wake:
    case call_number::futex_wait:
      *result = word_call(call);
      return true;
    default:
      return false;
  }
}

}  // namespace farside::preload
