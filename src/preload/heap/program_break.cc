#include "preload/heap/program_break.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>

#include "base/bits.h"
#include "base/os.h"
#include "base/sync.h"
#include "preload/heap/mappings.h"

namespace farside::preload {
namespace {

// The break grows by an eighth, so that a program which takes a page at a time does not make a mapping of each.
constexpr uint64_t kMinStep = 64 * kKiB, kMaxStep = 64 * kMiB;

struct ProgramBreak {
  uint64_t begin = 0;   // the kernel's break; 0: not read yet
  uint64_t end = 0;     // the program's
  uint64_t mapped = 0;  // far memory from the first page behind `begin` to here, a multiple of the page size
};
Mutex g_break_mutex;  // guards g_break; held while the break moves
ProgramBreak g_break;

std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

bool map_to(ProgramBreak& b, uint64_t end) {
  long r = far_mmap(pointer(b.mapped), end - b.mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (r != static_cast<long>(b.mapped)) return false;
  b.mapped = end;
  return true;
}

bool map_until(ProgramBreak& b, uint64_t wanted) {
  if (wanted <= b.mapped) return true;
  uint64_t step = std::clamp((b.mapped - b.begin) / 8, kMinStep, kMaxStep);
  uint64_t least = align_up(std::max(wanted, b.mapped + kMinStep), kMinStep);
  uint64_t ahead = std::max(least, align_up(b.mapped + step, kMinStep));
  return map_to(b, ahead) || (ahead > least && map_to(b, least));
}

// What the program gives back reads as zeros when it is taken again.
void discard(uint64_t begin, uint64_t end) {
  begin = align_up(begin, kPageSize);
  end = align_up(end, kPageSize);
  if (begin < end) far_madvise(pointer(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

long far_brk(void* wanted_address) {
  auto wanted = reinterpret_cast<uint64_t>(wanted_address);
  SignalsBlocked blocked;
  LockGuard guard(g_break_mutex);
  ProgramBreak& b = g_break;
  if (b.begin == 0) {
    b.begin = b.end = static_cast<uint64_t>(os::call(SYS_brk, 0));
    b.mapped = align_up(b.begin, kPageSize);
  }
  constexpr uint64_t kMaxAddress = uint64_t{1} << 47;
  if (wanted < b.begin || wanted >= kMaxAddress || !map_until(b, wanted)) return static_cast<long>(b.end);
  discard(wanted, b.end);
  b.end = wanted;
  return static_cast<long>(b.end);
}

void lock_break() { g_break_mutex.lock(); }
void unlock_break() { g_break_mutex.unlock(); }

}  // namespace farside::preload
