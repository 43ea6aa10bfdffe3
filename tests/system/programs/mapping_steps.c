// Random sequences of calls on mappings, and what is seen after each: result, error, contents and protections. Prints a
// transcript that is the same natively and under Farside. It contains no addresses: areas have numbers, and places in
// them are in pages.
//
//   mapping_steps SEED SEQUENCES STEPS
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "far.h"

enum { kPages = 96, kFence = 16, kAreas = 3, kMseal = 462 };
enum { kDontNeedLocked = 24, kGuardInstall = 102, kGuardRemove = 103 };

// Area 0 is where mmap places it, area 1 at an address of the program's choice, area 2 the break.
static char* area[kAreas];
static const char* const kNames[kAreas] = {"placed", "chosen", "break"};
static int file = -1;  // its pages have contents of their own

static uint64_t state;
static unsigned pick(unsigned n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned)((state >> 16) % n);
}
static bool chance(unsigned one_in) { return pick(one_in) == 0; }

// ---- Transcript ----

static char line[8192];
static size_t used;
static void say(const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  int n = vsnprintf(line + used, sizeof line - used, format, rest);
  va_end(rest);
  used += (size_t)n < sizeof line - used ? (size_t)n : sizeof line - used - 1;
}
static void end_line(void) {
  say("\n");
  for (size_t done = 0; done < used;) {
    ssize_t n = write(1, line + done, used - done);
    CHECK(n > 0);
    done += (size_t)n;
  }
  used = 0;
}
static void say_result(long r) { r == -1 ? say(" = %s", strerrorname_np(errno)) : say(" = ok"); }

// ---- What a page is like: '-' no access, else 'r' or 'w' and its content ----

static sigjmp_buf back;
static void on_fault(int number) { siglongjmp(back, number); }
static bool faults(volatile unsigned char* at, bool write, unsigned* value) {
  if (sigsetjmp(back, 1)) return true;
  *value = *at;
  if (write) *at = (unsigned char)*value;
  return false;
}
static void say_pages(const char* start, unsigned pages) {
  say(" [");
  unsigned run = 0;
  char last[16] = "";
  for (unsigned i = 0; i <= pages; i++) {
    char now[16] = "";
    unsigned value = 0;
    volatile unsigned char* at = (volatile unsigned char*)start + i * PAGE + 100;
    if (i < pages && faults(at, false, &value)) strcpy(now, "-");
    else if (i < pages) snprintf(now, sizeof now, "%c%u", faults(at, true, &value) ? 'r' : 'w', value);
    if (i > 0 && strcmp(now, last) != 0) {
      say(run > 1 ? " %s*%u" : " %s", last, run);
      run = 0;
    }
    run++;
    strcpy(last, now);
  }
  say("]");
}

// ---- Arguments ----

struct range {
  int in;
  unsigned first, pages;
};
static struct range any_range(void) {
  struct range r = {(int)pick(kAreas), pick(kPages), 0};
  r.pages = 1 + pick(chance(3) ? kPages - r.first : (kPages - r.first + 7) / 8);
  return r;
}
static char* address(struct range r) { return area[r.in] + r.first * PAGE; }
// Mostly whole pages; sometimes fewer bytes, which the kernel rounds up.
static size_t bytes(struct range r) { return r.pages * PAGE - (chance(8) ? 1 + pick(PAGE - 1) : 0); }
static void say_range(const char* call, struct range r) { say("%s %s %u+%u", call, kNames[r.in], r.first, r.pages); }
static int any_protection(void) {
  static const int kProtections[] = {PROT_NONE,
                                     PROT_READ,
                                     PROT_READ | PROT_WRITE,
                                     PROT_READ | PROT_WRITE,
                                     PROT_WRITE,
                                     PROT_READ | PROT_WRITE | PROT_EXEC};
  return kProtections[pick(6)];
}

// ---- Steps ----

static void fill_step(struct range r) {
  unsigned value = 1 + pick(255), written = 0;
  for (unsigned i = 0; i < r.pages; i++) {
    volatile unsigned char* at = (volatile unsigned char*)address(r) + i * PAGE + 100;
    if (sigsetjmp(back, 1)) continue;
    *at = (unsigned char)value;
    written++;
  }
  say_range("fill", r), say(" by %u", value);
}

static void map_step(struct range r) {
  int protection = any_protection(), flags = MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
  long offset = 0;
  if (chance(5)) {
    flags = chance(2) ? MAP_SHARED : MAP_PRIVATE, fd = file;
    offset = (long)(pick(kPages - r.pages + 1) * PAGE);
  }
  int placing = pick(4) == 0 ? MAP_FIXED_NOREPLACE : pick(4) == 0 ? 0 : MAP_FIXED;
  if (chance(10)) flags |= MAP_NORESERVE;
  say_range("mmap", r), say(" p%d f%x fd%d", protection, flags | placing, fd >= 0);
  char* p = mmap(address(r), bytes(r), protection, flags | placing, fd, offset);
  say_result(p == MAP_FAILED ? -1 : 0);
  if (p == MAP_FAILED) return;
  say(p == address(r) ? " there" : " elsewhere");
  if (p != address(r)) CHECK(munmap(p, r.pages * PAGE) == 0);
}

static void unmap_step(struct range r) { say_range("munmap", r), say_result(munmap(address(r), bytes(r))); }

static void protect_step(struct range r) {
  int protection = chance(30) ? 0x40 : any_protection();
  say_range("mprotect", r), say(" p%d", protection), say_result(mprotect(address(r), bytes(r), protection));
}

static const int kAdvice[] = {MADV_DONTNEED,      MADV_DONTNEED,
                              MADV_DONTNEED,      MADV_NORMAL,
                              MADV_RANDOM,        MADV_SEQUENTIAL,
                              MADV_WILLNEED,      MADV_DONTFORK,
                              MADV_DOFORK,        MADV_WIPEONFORK,
                              MADV_KEEPONFORK,    MADV_HUGEPAGE,
                              MADV_COLD,          MADV_NOHUGEPAGE,
                              MADV_PAGEOUT,       MADV_DONTDUMP,
                              MADV_DODUMP,        MADV_REMOVE,
                              MADV_POPULATE_READ, MADV_POPULATE_WRITE,
                              kDontNeedLocked,    kGuardInstall,
                              kGuardInstall,      kGuardRemove,
                              kGuardRemove,       77,
                              MADV_UNMERGEABLE};
static void advise_step(struct range r) {
  int advice = kAdvice[pick(sizeof kAdvice / sizeof *kAdvice)];
  say_range("madvise", r), say(" a%d", advice), say_result(madvise(address(r), bytes(r), advice));
}

static void advise_several_step(struct range r) {
  static const int kSome[] = {MADV_DONTNEED, MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, kGuardInstall, kGuardRemove, 77};
  struct range second = any_range();
  struct iovec pieces[] = {{address(r), r.pages * PAGE}, {address(second), second.pages * PAGE}};
  int advice = kSome[pick(sizeof kSome / sizeof *kSome)], self = (int)syscall(SYS_pidfd_open, getpid(), 0);
  long n = syscall(SYS_process_madvise, self, pieces, 2, advice, chance(20));
  say_range("process_madvise", r), say_range("", second), say(" a%d", advice), say_result(n);
  if (n >= 0) say(" %ld", n / (long)PAGE);
  close(self);
  say_pages(address(second), second.pages);
}

static void remap_step(struct range r) {
  static const int kFlags[] = {0,
                               MREMAP_MAYMOVE,
                               MREMAP_MAYMOVE,
                               MREMAP_MAYMOVE | MREMAP_FIXED,
                               MREMAP_MAYMOVE | MREMAP_FIXED,
                               MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
                               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                               MREMAP_FIXED,
                               8};
  int flags = kFlags[pick(9)];
  struct range to = any_range();
  unsigned pages = chance(3) ? to.pages : r.pages;
  if (to.first + pages > kPages) to.first = kPages - pages;
  if (!(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) && chance(2)) pages = 1 + pick(kPages - r.first);
  // Which neighbours the kernel has joined, and can resize as one, depends on more than their attributes.
  if (pages != r.pages || (flags & MREMAP_DONTUNMAP)) r.pages = 1;
  if (flags & MREMAP_DONTUNMAP) {
    pages = 1;
    munlockall();  // the kernel unlocks all that it has joined with the page
  }
  unsigned old_pages = chance(30) ? 0 : r.pages;
  bool fixed = flags & MREMAP_FIXED;
  say_range("mremap", r), say(" %u to %u f%d", old_pages, pages, flags);
  if (fixed) say(" %s %u", kNames[to.in], to.first);
  void* place = fixed ? area[to.in] + to.first * PAGE : NULL;
  long moved = syscall(SYS_mremap, address(r), old_pages * PAGE, pages * PAGE, flags, place);
  say_result(moved);
  if (moved == -1) return;
  char* now = (char*)moved;
  say(now == address(r) ? " in place" : fixed ? " there" : " elsewhere"), say_pages(now, pages);
  if (now != address(r) && !fixed) CHECK(munmap(now, pages * PAGE) == 0);
}

static void resident_step(struct range r) {
  static unsigned char resident[kPages];
  say_range("mincore", r);
  int error = mincore(address(r), bytes(r), resident);
  say_result(error);
  if (error) return;
  for (unsigned i = 0; i < r.pages; i++) {
    unsigned value = 0;
    bool has_content = !faults((volatile unsigned char*)address(r) + i * PAGE + 100, false, &value) && value != 0;
    if (has_content && !(resident[i] & 1)) say(" absent %u", r.first + i);
  }
}

static void sync_step(struct range r) {
  static const int kFlags[] = {MS_ASYNC, MS_SYNC, MS_SYNC | MS_INVALIDATE, MS_ASYNC | MS_SYNC, 64, 0};
  int flags = kFlags[pick(6)];
  say_range("msync", r), say(" f%d", flags), say_result(msync(address(r), bytes(r), flags));
}

static void lock_step(struct range r) {
  unsigned kind = pick(4);
  say_range(kind < 2 ? "munlock" : kind == 2 ? "mlock" : "mlock2", r);
  say_result(kind < 2    ? munlock(address(r), bytes(r))
             : kind == 2 ? mlock(address(r), bytes(r))
                         : mlock2(address(r), bytes(r), MLOCK_ONFAULT));
}

static void seal_step(struct range r) {
  say_range("mseal", r), say_result(syscall(kMseal, address(r), bytes(r), chance(10)));
}

// Arguments that are wrong whatever is mapped.
static void wrong_step(struct range r) {
  static const size_t kSizes[] = {0, SIZE_MAX, SIZE_MAX - 100, SIZE_MAX - 5000, SIZE_MAX / 2 + 1, (size_t)1 << 47};
  char* at = address(r) + (chance(2) ? 1 + pick(PAGE - 1) : 0);
  size_t size = kSizes[pick(6)];
  unsigned char byte[1];
  int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  if (at == address(r) && size == 0) return;
  say_range("wrong", r), say(" by %d size %zx", at != address(r), size);
  bool wraps = size > (size_t)1 << 46;
  if (at != address(r) || size == 0 || size > SIZE_MAX / 2 + 1) say_result(munmap(at, size));
  if (at != address(r) || size > SIZE_MAX / 2 + 1) say_result(mprotect(at, size, PROT_READ));
  if (at != address(r) || size > SIZE_MAX / 2 + 1) say_result(madvise(at, size, MADV_NORMAL));
  if (wraps) say_result(mincore(at, size, byte));
  if (at != address(r) || size > SIZE_MAX / 2 + 1) say_result(msync(at, size, MS_ASYNC));
  if (size != 0) say_result(mremap(at, PAGE, size, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
  if (size != 0) say_result(mmap(at, size, PROT_READ, anonymous, -1, 0) == MAP_FAILED ? -1 : 0);
  if (at != address(r) || wraps)
    say_result(mmap(at, size, PROT_READ, anonymous | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
  say_result(mmap(address(r), PAGE, PROT_READ, anonymous | MAP_FIXED, -1, 1) == MAP_FAILED ? -1 : 0);
  say_result(mmap(address(r), PAGE, PROT_READ, MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
  say_result(mmap(address(r), PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, 9999, 0) == MAP_FAILED ? -1 : 0);
}

static void break_step(struct range r) {
  char* wanted = area[2] + r.first * PAGE + (chance(2) ? 0 : pick(PAGE));
  if (chance(20)) wanted = area[2] - 100;
  say("brk %ld", (long)(wanted - area[2])), say_result(brk(wanted));
  say(" now %ld", (long)((char*)sbrk(0) - area[2])), say_pages(area[2], kPages + 2);
}

static void fork_step(void) {
  say("fork");
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (int i = 0; i < kAreas; i++) say_pages(area[i], kPages);
    end_line();
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  used = 0;
  say("child %d", status);
}

// Uses other memory, so that what the steps are about becomes far. Not from malloc, which may move the break.
static void press(void) {
  static volatile char* ballast;
  enum { kBytes = 12 * MIB };
  if (!ballast) ballast = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t at = 0; at < kBytes; at += PAGE) ballast[at]++;
}

static void step(bool may_seal) {
  struct range r = any_range();
  if (chance(30)) press();
  switch (pick(20)) {
    case 0:
    case 1:
    case 2:
      fill_step(r);
      break;
    case 3:
    case 4:
    case 5:
      map_step(r);
      break;
    case 6:
      unmap_step(r);
      break;
    case 7:
    case 8:
      protect_step(r);
      break;
    case 9:
    case 10:
      advise_step(r);
      break;
    case 11:
      advise_several_step(r);
      break;
    case 12:
    case 13:
    case 14:
      remap_step(r);
      break;
    case 15:
      resident_step(r);
      break;
    case 16:
      sync_step(r);
      break;
    case 17:
      lock_step(r);
      break;
    case 18:
      break_step(r);
      break;
    default:
      if (chance(3)) wrong_step(r);
      else if (chance(6)) fork_step();
      else if (may_seal && chance(4)) seal_step(r);
      else break_step(r);
  }
  if (used == 0) return;
  say_pages(address(r), r.pages);
  end_line();
}

// ---- A sequence ----

static char* fenced(char* wanted) {
  size_t size = (kPages + 2 * kFence) * PAGE;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (wanted ? MAP_FIXED_NOREPLACE : 0);
  char* p = mmap(wanted, size, PROT_NONE, flags, -1, 0);
  CHECK(p != MAP_FAILED);
  p += kFence * PAGE;
  CHECK(mmap(p, kPages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
  return p;
}

static void sequence(unsigned steps, bool may_seal) {
  // What was sealed stays, so each sequence has areas of its own.
  static char* chosen = (char*)0x600000000;
  area[0] = fenced(NULL);
  area[1] = fenced(chosen);
  chosen += 4 * MIB;
  if (!area[2]) area[2] = (char*)(((uintptr_t)sbrk(0) + PAGE - 1) & ~(PAGE - 1));
  brk(area[2]);  // refused where nothing is mapped there
  for (unsigned i = 0; i < steps; i++) step(may_seal);
  munlockall();
  for (int i = 0; i < kAreas; i++) say("end %s", kNames[i]), say_pages(area[i], kPages), end_line();
  for (int i = 0; i < 2; i++) munmap(area[i] - kFence * PAGE, (kPages + 2 * kFence) * PAGE);
  munmap(area[2], kPages * PAGE);
}

int main(int argc, char** argv) {
  CHECK(argc == 4);
  state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u + 88172645463325252u;
  unsigned sequences = (unsigned)atoi(argv[2]), steps = (unsigned)atoi(argv[3]);
  signal(SIGSEGV, on_fault), signal(SIGBUS, on_fault);
  file = memfd_create("mapping_steps", 0);
  CHECK(file >= 0 && ftruncate(file, kPages * PAGE) == 0);
  for (unsigned i = 0; i < kPages; i++) CHECK(pwrite(file, (char[]){(char)(i + 1)}, 1, (off_t)(i * PAGE + 100)) == 1);
  for (unsigned i = 0; i < sequences; i++) {
    say("sequence %u", i), end_line();
    sequence(steps, i + 1 == sequences);
  }
  return 0;
}
