// Programs that watch memory by a userfaultfd of their own: what faults, what is there already, and what remains after.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "far.h"

enum { PAGES = 256, USED = 64 };  // of a block; those that have content before it is watched
#define BYTES (PAGES * PAGE)
#define MOVE _IOWR(UFFDIO, 5, uint64_t[5])  // Linux 6.8

static int watcher;
static char* block;
static volatile int faults, ends;

// A page that the program writes: the same as fill() does, with the number of the page.
static void serve(uint64_t address, int protected) {
  static char page[PAGE];
  uint64_t at = address & ~(PAGE - 1);
  faults++;
  if (protected) {
    struct uffdio_writeprotect open = {.range = {at, PAGE}};
    CHECK(ioctl(watcher, UFFDIO_WRITEPROTECT, &open) == 0);
    return;
  }
  memset(page, (int)(1 + (at - (uint64_t)block) / PAGE % 100), PAGE);
  struct uffdio_copy copy = {.dst = at, .src = (uint64_t)page, .len = PAGE};
  CHECK(ioctl(watcher, UFFDIO_COPY, &copy) == 0);
}

static void* serve_all(void* unused) {
  struct uffd_msg* message = malloc(sizeof *message);
  while (read(watcher, message, sizeof *message) == sizeof *message) {
    if (ends) break;
    serve(message->arg.pagefault.address, message->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
  }
  return unused;
}

static void open_watcher(void) {
  watcher = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  CHECK(watcher >= 0);
  struct uffdio_api api = {.api = UFFD_API};
  CHECK(ioctl(watcher, UFFDIO_API, &api) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, serve_all, NULL) == 0);
}

static int watch(char* at, size_t bytes, uint64_t mode) {
  struct uffdio_register* wanted = malloc(sizeof *wanted);
  *wanted = (struct uffdio_register){.range = {(uint64_t)at, bytes}, .mode = mode};
  int error = ioctl(watcher, UFFDIO_REGISTER, wanted) ? errno : 0;
  free(wanted);
  return error;
}

static void unwatch(char* at, size_t bytes) {
  struct uffdio_range range = {(uint64_t)at, bytes};
  CHECK(ioctl(watcher, UFFDIO_UNREGISTER, &range) == 0);
}

static long sum_of(const char* at, size_t bytes) {
  long sum = 0;
  for (size_t i = 0; i < bytes; i += PAGE / 2) sum += (unsigned char)at[i];
  return sum;
}

static void report(const char* at, size_t bytes) {
  long sum = sum_of(at, bytes);
  printf("%ld, %d faults\n", sum, faults);
}

static char* map(size_t bytes) {
  char* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

// Pages with content do not fault, others do, and again after they were dropped.
static void check_missing(char* at) {
  block = at;
  fill(block, USED * PAGE, 1);
  push_far(block, USED * PAGE);
  CHECK(watch(block, BYTES, UFFDIO_REGISTER_MODE_MISSING) == 0);
  CHECK(filled(block, USED * PAGE, 1) && faults == 0);
  report(block + USED * PAGE, BYTES - USED * PAGE);
  CHECK(madvise(block, BYTES / 2, MADV_DONTNEED) == 0);
  report(block, BYTES);
}

static void missing(void) {
  open_watcher();
  check_missing(map(BYTES));
  munmap(block, BYTES);
  char* again = map(BYTES);
  CHECK(sum_of(again, BYTES) == 0);
}

static void missing_outside(void) {
  open_watcher();
  char* place = map(BYTES + PAGE);
  munmap(place, BYTES + PAGE);
  check_missing(
      mmap((void*)0x300000000000, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

// The C library maps such a block of its own; here it is of the heap.
static void missing_in_the_heap(void) {
  open_watcher();
  char* p = aligned_alloc(PAGE, BYTES);
  CHECK(p && malloc_usable_size(p) >= BYTES);
  madvise(p, BYTES, MADV_DONTNEED);
  check_missing(p);
  unwatch(p, BYTES);
  free(p);
  for (int i = 0; i < 8; i++) {
    char* zeroed = calloc(1, BYTES);
    CHECK(sum_of(zeroed, BYTES) == 0);
    fill(zeroed, BYTES, 3);
    push_far(zeroed, BYTES);
    CHECK(filled(zeroed, BYTES, 3));
    free(zeroed);
  }
}

// The middle of a mapping; what is beside it stays far and has its content.
static void middle(void) {
  open_watcher();
  block = map(3 * BYTES);
  fill(block, 3 * BYTES, 5);
  push_far(block, 3 * BYTES);
  CHECK(watch(block + BYTES, BYTES, UFFDIO_REGISTER_MODE_MISSING) == 0);
  CHECK(filled(block, 3 * BYTES, 5) && faults == 0);
  push_far(block, BYTES);
  push_far(block + 2 * BYTES, BYTES);
  unwatch(block + BYTES, BYTES);
  CHECK(madvise(block, 3 * BYTES, MADV_DONTNEED) == 0);
  CHECK(sum_of(block, 3 * BYTES) == 0 && faults == 0);
  fill(block, 3 * BYTES, 6);
  CHECK(filled(block, 3 * BYTES, 6));
  CHECK(mprotect(block, 3 * BYTES, PROT_READ) == 0 && munmap(block, 3 * BYTES) == 0);
}

// A snapshot while the program goes on: each first write is a fault.
static void write_protected(void) {
  open_watcher();
  block = map(BYTES);
  fill(block, BYTES, 7);
  push_far(block, BYTES);
  CHECK(watch(block, BYTES, UFFDIO_REGISTER_MODE_WP) == 0);
  struct uffdio_writeprotect protect = {.range = {(uint64_t)block, BYTES}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
  CHECK(ioctl(watcher, UFFDIO_WRITEPROTECT, &protect) == 0);
  CHECK(filled(block, BYTES, 7) && faults == 0);
  for (size_t i = 0; i < BYTES; i += 2 * PAGE) block[i] = 1;
  printf("%d faults\n", faults);
  int null = open("/dev/zero", O_RDONLY);
  CHECK(read(null, block, BYTES) == (ssize_t)BYTES);  // the kernel's writes are faults, too
  printf("%d faults, %ld\n", faults, sum_of(block, BYTES));
}

// Addresses that are reserved, watched, and used then; a hole; a second one that watches the same.
static void reserved(void) {
  open_watcher();
  block = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(block != MAP_FAILED && watch(block, BYTES, UFFDIO_REGISTER_MODE_MISSING) == 0);
  CHECK(mprotect(block, BYTES, PROT_READ | PROT_WRITE) == 0);
  report(block, BYTES);
  char* holed = map(3 * BYTES);
  munmap(holed + BYTES, BYTES);
  printf("hole: %d, unaligned: %d, mode: %d\n", watch(holed + BYTES, BYTES, UFFDIO_REGISTER_MODE_MISSING),
         watch(holed + 1, BYTES, UFFDIO_REGISTER_MODE_MISSING), watch(holed, BYTES, 1 << 20));
  int first = watcher;
  open_watcher();
  printf("again: %d\n", watch(block, BYTES, UFFDIO_REGISTER_MODE_MISSING));
  close(first);
}

static void children(void) {
  open_watcher();
  block = map(BYTES);
  fill(block, USED * PAGE, 9);
  push_far(block, USED * PAGE);
  CHECK(watch(block, BYTES, UFFDIO_REGISTER_MODE_MISSING) == 0);
  CHECK(sum_of(block, BYTES) > 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {  // which watches nothing
    CHECK(filled(block, USED * PAGE, 9));
    fill(block, BYTES, 10);
    _exit(filled(block, BYTES, 10) ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(filled(block, USED * PAGE, 9));
}

static void moved(void) {
  open_watcher();
  block = map(BYTES);
  char* source = map(BYTES);
  fill(source, BYTES, 11);
  push_far(source, BYTES);
  CHECK(watch(block, BYTES, UFFDIO_REGISTER_MODE_MISSING) == 0);
  uint64_t move[5] = {(uint64_t)block, (uint64_t)source, BYTES};
  if (ioctl(watcher, MOVE, move) != 0) {
    printf("not moved: %d\n", errno);  // by kernels before 6.8
    return;
  }
  CHECK(filled(block, BYTES, 11) && faults == 0 && sum_of(source, BYTES) == 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"missing", missing},
                                           {"missing_outside", missing_outside},
                                           {"missing_in_the_heap", missing_in_the_heap},
                                           {"middle", middle},
                                           {"write_protected", write_protected},
                                           {"reserved", reserved},
                                           {"children", children},
                                           {"moved", moved},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
