#include "preload/guard/thread/pins.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/log.h"

namespace farside::preload {

__attribute__((tls_model("initial-exec"))) thread_local GuardThread t_guard = {};

namespace {
pager::Pager* g_pager = nullptr;

void release(const PinRecord& record) {
  auto* address = reinterpret_cast<void*>(record.address);
  if (record.bytes & PinRecord::kMapped) [[unlikely]]
    os::unmap(address, record.bytes & ~PinRecord::kMapped);
  else g_pager->paging().unpin(address, record.bytes);
}

// Releases the records of stack frames below the program's stack pointer: they are of calls that a signal handler left
// by longjmp.
void drop_stale_pins(uint64_t stack_pointer) {
  GuardThread& g = this_guard();
  if (g.pin_count == 0 || on_alternate_stack(stack_pointer)) return;
  while (g.pin_count > 0 && g.pins[g.pin_count - 1].stack_pointer < stack_pointer) release(g.pins[--g.pin_count]);
}

// The next address after `at` where far memory may begin or end.
uint64_t next_window(uint64_t at) { return align_up(at + 1, pager::PageTable::kWindowBytes); }

uint64_t next_far(uint64_t at, uint64_t end) {
  while (at < end && !g_pager->table().contains(at)) at = next_window(at);
  return at;
}
}  // namespace

void set_guard_pager(pager::Pager* pager) { g_pager = pager; }
pager::Pager* guard_pager() { return g_pager; }

uint64_t pin_limit() {
  uint64_t share = g_pager->frames().limit() * kPageSize / 32;
  uint64_t max_bytes = 1024 * 1024;
  return align_down(share < max_bytes ? (share < 16 * kPageSize ? 16 * kPageSize : share) : max_bytes, kPageSize);
}

void repin_in_child() {
  for (unsigned i = 0; i < this_guard().pin_count; i++) {
    const PinRecord& record = this_guard().pins[i];
    if (record.bytes & PinRecord::kMapped) continue;  // the child has it as it is
    g_pager->paging().pin(reinterpret_cast<void*>(record.address), record.bytes, true);
  }
}

Pins::Pins(uint64_t stack_pointer) : stack_pointer_(stack_pointer), first_(this_guard().pin_count) {
  drop_stale_pins(stack_pointer);
  if (first_ > this_guard().pin_count) first_ = this_guard().pin_count;
}

Pins::~Pins() {
  GuardThread& g = this_guard();
  while (g.pin_count > first_) release(g.pins[--g.pin_count]);
}

bool touches_far(const void* address, uint64_t bytes) {
  constexpr uint64_t kMaxBytes = 2048 * kMiB;  // the kernel moves no more at a time
  auto begin = reinterpret_cast<uint64_t>(address);
  if (bytes == 0 || !g_pager) return false;
  uint64_t last = begin + (bytes < kMaxBytes ? bytes : kMaxBytes) - 1;
  if (g_pager->table().contains(begin) || g_pager->table().contains(last)) return true;
  return next_far(next_window(begin), last) < last;
}

std::byte* Pins::map_near(uint64_t bytes) {
  GuardThread& g = this_guard();
  if (g.pin_count == GuardThread::kMaxPins) return nullptr;
  long at = os::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (os::is_error(at)) return nullptr;
  g.pins[g.pin_count++] = {stack_pointer_, static_cast<uint64_t>(at), bytes | PinRecord::kMapped};
  return reinterpret_cast<std::byte*>(at);
}

bool Pins::add(const void* address, uint64_t bytes, bool write) {
  auto begin = reinterpret_cast<uint64_t>(address);
  if (!touches_far(address, bytes)) return true;
  uint64_t end = begin + bytes < begin ? ~uint64_t{0} : begin + bytes;
  if (!g_pager->table().contains(begin)) begin = next_far(begin, end);
  for (uint64_t at = begin; at < end && g_pager->table().contains(at);) {
    if (g_pager->table().is_foreign(at)) {  // the kernel can access it as it is
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
  GuardThread& g = this_guard();
  auto* at = reinterpret_cast<void*>(address);
  // Without room for a record the pages are only fetched. They are the most recently used ones, so they stay near for
  // some time; if they are evicted before the call uses them, it returns EFAULT.
  bool recorded = g.pin_count < GuardThread::kMaxPins;
  uint64_t pinned = g_pager->paging().pin(at, bytes, write);
  if (!recorded) g_pager->paging().unpin(at, pinned);
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

}  // namespace farside::preload
