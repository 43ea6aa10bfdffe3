#include "preload/heap/program_break.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/bits.h"
#include "base/os.h"
#include "base/sync.h"
#include "preload/heap/limits.h"
#include "preload/heap/mappings.h"

namespace farside::preload {
namespace {

struct ProgramBreak {
  uint64_t begin = 0;  // the kernel's break; 0: not read yet
  uint64_t end = 0;    // the program's; the pages from the first one behind `begin` to it were mapped
};
Mutex g_break_mutex;  // held while the break moves
ProgramBreak g_break GUARDED_BY(g_break_mutex);

bool is_within_limit(uint64_t bytes, uint64_t more) {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  os::call(SYS_prlimit64, 0, RLIMIT_DATA, nullptr, &limit);
  if (is_program_limit(RLIMIT_DATA)) limit = limit_of_program(limit);
  return bytes <= limit.rlim_cur && is_within_limits(more, Growth::kData);
}

bool is_mapped(uint64_t page) { return os::call(SYS_msync, page, kPageSize, MS_ASYNC) != -ENOMEM; }

bool is_free(uint64_t begin, uint64_t end) {
  constexpr int kFree = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  long r = os::mmap(pointer(begin), end - begin, PROT_NONE, kFree, -1, 0);
  if (!os::is_error(r)) os::munmap(reinterpret_cast<void*>(r), end - begin);
  return r == static_cast<long>(begin);
}

bool move_to(const ProgramBreak& b, uint64_t wanted) {
  constexpr uint64_t kMaxAddress = uint64_t{1} << 47;
  if (wanted < b.begin || wanted >= kMaxAddress) return false;
  uint64_t from = align_up(b.end, kPageSize), to = align_up(wanted, kPageSize);
  if (to < from) return !is_free(to, from) && far_munmap(pointer(to), from - to) == 0;  // the kernel needs something
  if (to == from) return true;
  // The kernel keeps a page free behind the break.
  if (!is_within_limit(wanted - b.begin, to - from) || is_mapped(to)) return false;
  return far_map_break(from, to) == static_cast<long>(from);
}

}  // namespace

long far_brk(void* wanted_address) {
  auto wanted = reinterpret_cast<uint64_t>(wanted_address);
  SignalsBlocked blocked;
  LockGuard guard(g_break_mutex);
  ProgramBreak& b = g_break;
  if (b.begin == 0) b.begin = b.end = static_cast<uint64_t>(os::call(SYS_brk, 0));
  if (move_to(b, wanted)) b.end = wanted;
  return static_cast<long>(b.end);
}

// Not analyzed: between the two is a fork.
void lock_break() NO_THREAD_SAFETY_ANALYSIS { g_break_mutex.lock(); }
void unlock_break() NO_THREAD_SAFETY_ANALYSIS { g_break_mutex.unlock(); }

}  // namespace farside::preload
