#include "preload/guard/guard.h"

#include <sys/syscall.h>

#include "base/log.h"
#include "preload/guard/special_calls.h"
#include "preload/guard/syscall_table.h"
#include "preload/guard/transfers.h"

namespace farside::preload {

__attribute__((tls_model("initial-exec"))) thread_local GuardThread t_guard = {};

namespace {
pager::Pager* g_pager = nullptr;

bool on_alternate_stack(uint64_t stack_pointer) {
  return stack_pointer >= t_guard.stack_low && stack_pointer < t_guard.stack_high;
}

// Unpins the records of stack frames below the program's stack pointer: they are of calls that a signal handler left by
// longjmp.
void drop_stale_pins(uint64_t stack_pointer) {
  GuardThread& g = t_guard;
  if (g.pin_count == 0 || on_alternate_stack(stack_pointer)) return;
  while (g.pin_count > 0 && g.pins[g.pin_count - 1].stack_pointer < stack_pointer) {
    const PinRecord& record = g.pins[--g.pin_count];
    g_pager->unpin(reinterpret_cast<void*>(record.address), record.bytes);
  }
}
}  // namespace

void set_guard_pager(pager::Pager* pager) { g_pager = pager; }
pager::Pager* guard_pager() { return g_pager; }

uint64_t pin_limit() {
  uint64_t share = g_pager->near_limit_bytes() / 32;
  uint64_t max_bytes = 1024 * 1024;
  return align_down(share < max_bytes ? (share < 16 * kPageSize ? 16 * kPageSize : share) : max_bytes, kPageSize);
}

void repin_in_child() {
  for (unsigned i = 0; i < t_guard.pin_count; i++) {
    const PinRecord& record = t_guard.pins[i];
    g_pager->pin(reinterpret_cast<void*>(record.address), record.bytes, true);
  }
}

Pins::Pins(uint64_t stack_pointer) : stack_pointer_(stack_pointer), first_(t_guard.pin_count) {
  drop_stale_pins(stack_pointer);
  if (first_ > t_guard.pin_count) first_ = t_guard.pin_count;
}

Pins::~Pins() {
  GuardThread& g = t_guard;
  while (g.pin_count > first_) {
    const PinRecord& record = g.pins[--g.pin_count];
    g_pager->unpin(reinterpret_cast<void*>(record.address), record.bytes);
  }
}

bool Pins::add(const void* address, uint64_t bytes, bool write) {
  auto begin = reinterpret_cast<uint64_t>(address);
  if (bytes == 0 || !g_pager || !g_pager->contains(begin)) return true;
  uint64_t end = begin + bytes < begin ? ~uint64_t{0} : begin + bytes;
  for (uint64_t at = begin; at < end && g_pager->contains(at);) {
    if (g_pager->is_foreign(at)) {  // the kernel can access it as it is
      at = align_down(at, kPageSize) + kPageSize;
      continue;
    }
    uint64_t pinned = add_far(at, end - at, write);
    if (pinned == 0) return false;
    at += pinned;
  }
  return true;
}

// Pins up to the first page that is not far memory.
uint64_t Pins::add_far(uint64_t address, uint64_t bytes, bool write) {
  GuardThread& g = t_guard;
  auto* at = reinterpret_cast<void*>(address);
  // Without room for a record the pages are only fetched. They are the most recently used ones, so they stay near for
  // some time; if they are evicted before the call uses them, it returns EFAULT.
  bool recorded = g.pin_count < GuardThread::kMaxPins;
  uint64_t pinned = g_pager->pin(at, bytes, write);
  if (!recorded) g_pager->unpin(at, pinned);
  else if (pinned > 0) g.pins[g.pin_count++] = {stack_pointer_, address, pinned};
  return pinned;
}

bool Pins::add_string(const char* text) {
  while (is_far(text)) {
    uint64_t room = kPageSize - reinterpret_cast<uint64_t>(text) % kPageSize;
    if (!add(text, room, false)) return false;
    for (uint64_t i = 0; i < room; i++) {
      if (text[i] == 0) return true;
    }
    text += room;
  }
  return true;
}

long guarded_call(const Call& call) {
  long result;
  if (special_call(call, &result)) return result;
  if (transfer_call(call, &result)) return result;
  return table_call(call);
}

}  // namespace farside::preload
