// mmap, munmap, mremap, mprotect, madvise and mlock on far memory. The contents are compared with what they must be.
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include <stdbool.h>

#include "far.h"

#define BLOCK (8 * MIB)

static sigjmp_buf back;
static void* volatile fault_address;

static void on_segv(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  fault_address = info->si_addr;
  siglongjmp(back, 1);
}

// True if accessing the byte raises SIGSEGV with exactly its address.
static int faults(volatile char* at, int write) {
  struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO}, old;
  CHECK(sigaction(SIGSEGV, &action, &old) == 0);
  fault_address = NULL;
  int raised = sigsetjmp(back, 1);
  if (!raised) {
    char value = *at;
    if (write) *at = value;
  }
  CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
  if (raised) CHECK(fault_address == (void*)at);
  return raised;
}

static char* map(size_t bytes) {
  char* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

static int zero(const char* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (p[i]) return 0;
  }
  return 1;
}

static void fresh_is_zero(void) {
  for (int round = 0; round < 4; round++) {
    char* p = map(BLOCK);
    CHECK(zero(p, BLOCK));
    fill(p, BLOCK, 1);
    push_far(p, BLOCK);
    CHECK(munmap(p, BLOCK) == 0);
  }
}

static void unmapped_parts(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 2);
  push_far(p, BLOCK);
  char* keep = malloc(BLOCK);
  memcpy(keep, p, BLOCK);
  CHECK(munmap(p + BLOCK / 4, BLOCK / 4) == 0);
  CHECK(!memcmp(p, keep, BLOCK / 4));
  CHECK(!memcmp(p + BLOCK / 2, keep + BLOCK / 2, BLOCK / 2));
  CHECK(faults(p + BLOCK / 4, 0) && faults(p + BLOCK / 2 - 1, 1));
  char* fixed = mmap(p + BLOCK / 4, BLOCK / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CHECK(fixed == p + BLOCK / 4 && zero(fixed, BLOCK / 4));
  fill(fixed, BLOCK / 4, 3);
  push_far(p, BLOCK);
  CHECK(filled(fixed, BLOCK / 4, 3) && !memcmp(p, keep, BLOCK / 4));
  CHECK(munmap(p, BLOCK) == 0);
  CHECK(faults(p, 0) && faults(p + BLOCK - 1, 0));
  free(keep);
}

static void fixed_over_far(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 4);
  push_far(p, BLOCK);
  char* keep = malloc(BLOCK);
  memcpy(keep, p, BLOCK);
  int fd = open("/proc/self/exe", O_RDONLY);
  CHECK(fd >= 0);
  char head[PAGE];
  CHECK(read(fd, head, PAGE) == (ssize_t)PAGE);
  char* file = mmap(p + MIB, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
  // Under Farside this is an error (EINVAL), and the memory must be unchanged.
  bool refused = file == MAP_FAILED && errno == EINVAL;
  CHECK(refused ? !memcmp(p + MIB, keep + MIB, PAGE) : file == p + MIB && !memcmp(file, head, PAGE));
  close(fd);
  CHECK(!memcmp(p, keep, MIB) && !memcmp(p + MIB + PAGE, keep + MIB + PAGE, BLOCK - MIB - PAGE));
  CHECK(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
        errno == EEXIST);
  CHECK(munmap(p, BLOCK) == 0);
  free(keep);
}

static void remapped(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 5);
  push_far(p, BLOCK);
  p = mremap(p, BLOCK, 3 * BLOCK, MREMAP_MAYMOVE);
  CHECK(p != MAP_FAILED && filled(p, BLOCK, 5) && zero(p + BLOCK, 2 * BLOCK));
  push_far(p, BLOCK);
  CHECK(mremap(p, 3 * BLOCK, BLOCK / 2, 0) == p);
  CHECK(filled(p, BLOCK / 2, 5) && faults(p + BLOCK / 2, 0));
  CHECK(munmap(p, BLOCK / 2) == 0);
  errno = 0;
  CHECK(mremap(p, BLOCK / 2, 2 * BLOCK, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
}

static void moved_to_a_place(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 5);
  push_far(p, BLOCK);
  char* place = map(2 * BLOCK);
  char* moved = mremap(p, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  CHECK(moved == place && filled(moved, BLOCK, 5) && faults(p, 0) && zero(place + BLOCK, BLOCK));
  push_far(moved, BLOCK);
  CHECK(filled(moved, BLOCK, 5));
}

// To an address outside far memory: a small mapping.
static void moved_near(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 5);
  push_far(p, BLOCK);
  char* small = map(4 * PAGE);
  char* moved = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, small);
  CHECK(moved == small && filled(moved, 4 * PAGE, 5) && faults(p, 0));
}

static void protected(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 6);
  push_far(p, BLOCK);
  CHECK(mprotect(p + MIB, MIB, PROT_READ) == 0);
  CHECK(!faults(p + MIB, 0) && faults(p + MIB, 1) && faults(p + 2 * MIB - 1, 1));
  CHECK(!faults(p + MIB - 1, 1) && !faults(p + 2 * MIB, 1));
  CHECK(mprotect(p, BLOCK, PROT_NONE) == 0);
  CHECK(faults(p, 0) && faults(p + BLOCK - 1, 1));
  CHECK(mprotect(p, BLOCK, PROT_READ | PROT_WRITE) == 0);
  CHECK(filled(p, BLOCK, 6));
  push_far(p, BLOCK);
  CHECK(filled(p, BLOCK, 6) && munmap(p, BLOCK) == 0);
  char* guarded = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(guarded != MAP_FAILED && faults(guarded, 0));
  CHECK(mprotect(guarded + MIB, MIB, PROT_READ | PROT_WRITE) == 0);
  CHECK(zero(guarded + MIB, MIB) && faults(guarded + MIB - 1, 0) && faults(guarded + 2 * MIB, 0));
  errno = 0;
  CHECK(mprotect(guarded + 1, MIB, PROT_READ) == -1 && errno == EINVAL);
  CHECK(munmap(guarded, BLOCK) == 0);
}

static void advised(void) {
  char* p = map(BLOCK);
  fill(p, BLOCK, 7);
  push_far(p, BLOCK);
  CHECK(madvise(p + MIB, 2 * MIB, MADV_DONTNEED) == 0);
  CHECK(zero(p + MIB, 2 * MIB) && filled(p, MIB, 7));
  fill(p, BLOCK, 8);
  CHECK(madvise(p, BLOCK, MADV_DONTNEED) == 0);  // while dirty pages are near
  CHECK(zero(p, BLOCK));
  fill(p, BLOCK, 9);
  push_far(p, BLOCK);
  for (int advice = MADV_NORMAL; advice <= MADV_WILLNEED; advice++) CHECK(madvise(p, BLOCK, advice) == 0);
  CHECK(madvise(p, BLOCK, MADV_NOHUGEPAGE) == 0);
  CHECK(filled(p, BLOCK, 9));
  CHECK(madvise(p, MIB, MADV_FREE) == 0);  // each page is then unchanged or zero
  for (size_t at = 0; at < MIB; at += PAGE) {
    char* page = p + at;
    char expected[PAGE];
    for (size_t i = 0; i < PAGE; i++) {
      size_t k = at + i;
      expected[i] = (char)((k * 2654435761u + 9u * 40503u + (k >> 12) * 97u) >> 7);
    }
    CHECK(zero(page, PAGE) || !memcmp(page, expected, PAGE));
  }
  fill(p, MIB, 10);
  push_far(p, MIB);
  CHECK(filled(p, MIB, 10));
  errno = 0;
  CHECK(madvise(p + 1, MIB, MADV_DONTNEED) == -1 && errno == EINVAL);
  CHECK(munmap(p, BLOCK) == 0);
}

// mlock succeeds or fails (RLIMIT_MEMLOCK); the contents stay.
static void locked(void) {
  char* p = far_buffer(BLOCK, 11);
  int one = mlock(p, MIB), all = mlockall(MCL_CURRENT);
  CHECK(one == 0 || errno == ENOMEM || errno == EPERM);
  CHECK(filled(p, BLOCK, 11));
  if (one == 0) CHECK(munlock(p, MIB) == 0);
  if (all == 0) CHECK(munlockall() == 0);
  CHECK(filled(p, BLOCK, 11));
  unsigned char present[16];
  CHECK(mincore((void*)((uintptr_t)p & ~(PAGE - 1)), 16 * PAGE, present) == 0);
  CHECK(msync((void*)((uintptr_t)p & ~(PAGE - 1)), PAGE, MS_ASYNC) == 0);
  free(p);
}

// The same random calls are applied to a block and to a near copy, while another thread causes evictions.
enum { kModelPages = 512, kModelSteps = 3000 };
static volatile int model_ends;

static void* press(void* unused) {
  (void)unused;
  volatile char* more = malloc(16 * MIB);
  CHECK(more);
  while (!model_ends) {
    for (size_t at = 0; at < 16 * MIB && !model_ends; at += PAGE) more[at]++;
  }
  return NULL;
}

static void model(void) {
  static unsigned char shadow[kModelPages * PAGE];  // globals stay near
  unsigned char* p = (unsigned char*)map(sizeof shadow);
  pthread_t presser;
  CHECK(pthread_create(&presser, NULL, press, NULL) == 0);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (int step = 0; step < kModelSteps; step++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    size_t first = (state >> 8) % kModelPages, pages = (state >> 24) % 24 + 1;
    if (first + pages > kModelPages) pages = kModelPages - first;
    unsigned char *at = p + first * PAGE, *copy = shadow + first * PAGE;
    size_t bytes = pages * PAGE;
    switch (state % 6) {
      case 0:
        CHECK(madvise(at, bytes, MADV_DONTNEED) == 0);
        memset(copy, 0, bytes);
        break;
      case 1:
        CHECK(munmap(at, bytes) == 0);
        CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        memset(copy, 0, bytes);
        break;
      case 2:
        CHECK(mprotect(at, bytes, PROT_READ) == 0);
        CHECK(!memcmp(at, copy, bytes));
        CHECK(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
        break;
      case 3:
        CHECK(mprotect(at, bytes, PROT_NONE) == 0);
        CHECK(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
        CHECK(!memcmp(at, copy, bytes));
        *at ^= 1, *copy ^= 1;
        break;
      case 4:
        fill(at, bytes, (uint32_t)step);
        memcpy(copy, at, bytes);
        break;
      default:
        CHECK(!memcmp(at, copy, bytes));
    }
  }
  CHECK(!memcmp(p, shadow, sizeof shadow));
  model_ends = 1;
  CHECK(pthread_join(presser, NULL) == 0);
}

// The number of mappings exceeds what a process may have as VMAs if every mmap made its own.
static void many(void) {
  enum { kCount = 2000 };
  static char* blocks[kCount];
  for (int i = 0; i < kCount; i++) {
    blocks[i] = map(64 * 1024);
    fill(blocks[i], 64, (uint32_t)i);
  }
  for (int i = 0; i < kCount; i += 2) CHECK(munmap(blocks[i], 64 * 1024) == 0);
  for (int i = 1; i < kCount; i += 2) CHECK(filled(blocks[i], 64, (uint32_t)i));
  for (int i = 1; i < kCount; i += 2) CHECK(munmap(blocks[i], 64 * 1024) == 0);
}

// A temporary file of 64 pages, each filled with its number.
static int numbered_file(void) {
  char name[] = "/tmp/farside-mappings-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  char page[PAGE];
  for (int i = 0; i < 64; i++) {
    memset(page, i, PAGE);
    CHECK(write(fd, page, PAGE) == (ssize_t)PAGE);
  }
  return fd;
}

static void check_file_over_far(char* p) {
  CHECK(filled(p, 2 * MIB, 3));
  for (int i = 0; i < 64; i++) CHECK(p[2 * MIB + (size_t)i * PAGE + 5] == i);
  CHECK(filled(p + 2 * MIB + 64 * PAGE, MIB, 4));
}

// Files over far memory: the neighbours stay, in children too, and what is unmapped is far space again.
static void files_over_far(void) {
  int fd = numbered_file();
  char* p = map(BLOCK);
  fill(p, BLOCK, 3);
  fill(p + 2 * MIB + 64 * PAGE, MIB, 4);
  CHECK(mmap(p + 2 * MIB, 64 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == p + 2 * MIB);
  push_far(p, 2 * MIB);
  check_file_over_far(p);
  pid_t child = fork();
  if (child == 0) {
    fill(p + 5 * MIB, MIB, 9);
    push_far(p, 2 * MIB);
    check_file_over_far(p);
    CHECK(munmap(p + 2 * MIB, 64 * PAGE) == 0);
    CHECK(mmap(p + 2 * MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          p + 2 * MIB);
    fill(p + 2 * MIB, MIB, 8);
    push_far(p + 2 * MIB, MIB);
    CHECK(filled(p + 2 * MIB, MIB, 8) && filled(p + 5 * MIB, MIB, 9));
    _exit(0);
  }
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  push_far(p, 2 * MIB);
  check_file_over_far(p);
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && ftruncate(fd, 0) == 0);
  CHECK(write(fd, p, 2 * MIB) == (ssize_t)(2 * MIB));
  CHECK(munmap(p, BLOCK) == 0);
  close(fd);
}

// A mapping of a file that became shorter: the program gets the SIGBUS.
static sigjmp_buf bus_back;
static void on_bus(int number) {
  (void)number;
  siglongjmp(bus_back, 1);
}
static void sigbus_of_a_file(void) {
  int fd = numbered_file();
  char* p = map(BLOCK);
  CHECK(mmap(p, 64 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == p);
  CHECK(p[5 * PAGE] == 5 && ftruncate(fd, PAGE) == 0);
  CHECK(signal(SIGBUS, on_bus) != SIG_ERR);
  int raised = sigsetjmp(bus_back, 1);
  if (!raised) p[0] = ((volatile char*)p)[5 * PAGE];
  CHECK(raised);
  close(fd);
}

static void aligned_library(void) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
  CHECK(length > 0);
  path[length] = 0;
  strcpy(strrchr(path, '/'), "/aligned.so");
  for (int round = 0; round < 3; round++) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!library) dprintf(2, "%s\n", dlerror());
    CHECK(library);
    int (*number)(void) = (int (*)(void))dlsym(library, "aligned_count");
    char* (*exchange)(char*) = (char* (*)(char*))dlsym(library, "aligned_exchange");
    CHECK(number() == 48 && number() == 48 + 1 + 50);
    for (int i = 0; i < 1000; i++) {
      char* mine = malloc(100 + (size_t)i);
      strcpy(mine, "from the program");
      mine = exchange(mine);
      CHECK(!strcmp(mine, "from the program"));
      free(mine);
    }
    CHECK(dlclose(library) == 0);
  }
}

// Reservations at a place of the program's choice, and of more than there is, committed in parts.
static void outside(void) {
  char* wanted = (char*)0x40000000000;
  char* p = mmap(wanted, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p == wanted);
  char* low = mmap((char*)0xe0000000, 512 * MIB, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(low == (char*)0xe0000000);
  size_t bytes = (size_t)4 << 40;
  char* huge = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(huge != MAP_FAILED);
  char* high = huge + bytes / 2 + 3 * PAGE;
  CHECK(mprotect(low + MIB, 16 * MIB, PROT_READ | PROT_WRITE) == 0);
  CHECK(mprotect(high, 16 * MIB, PROT_READ | PROT_WRITE) == 0);
  char* parts[] = {p, low + MIB, high};
  for (int i = 0; i < 3; i++) fill(parts[i], 16 * MIB, (uint32_t)i);
  for (int i = 0; i < 3; i++) {
    push_far(parts[i], 16 * MIB);
    CHECK(filled(parts[i], 16 * MIB, (uint32_t)i));
  }
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 3; i++) CHECK(filled(parts[i], 16 * MIB, (uint32_t)i));
    fill(high, 16 * MIB, 7);
    _exit(0);
  }
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  int fd = numbered_file();
  CHECK(pread(fd, high + MIB - PAGE, 2 * PAGE, 0) == (ssize_t)(2 * PAGE) && high[MIB] == 1);
  // Given up and committed again, as a collector does.
  CHECK(mmap(high, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == high);
  CHECK(mprotect(high, MIB, PROT_READ | PROT_WRITE) == 0 && high[0] == 0);
  CHECK(filled(low + MIB, 16 * MIB, 1));
  char* moved = mremap(p, 16 * MIB, 24 * MIB, MREMAP_MAYMOVE);
  CHECK(moved != MAP_FAILED && filled(moved, 16 * MIB, 0));
  CHECK(munmap(huge, bytes) == 0 && munmap(low, 512 * MIB) == 0 && munmap(moved, 24 * MIB) == 0);
  close(fd);
}

// The lowest addresses that a program may map, up to where a static one is.
static void lowest(void) {
  for (uintptr_t place = 0x10000; place < 4 * MIB; place *= 2) {
    char* at = (char*)place;
    size_t bytes = 4 * MIB - place;
    for (int fixed = 0; fixed < 2; fixed++) {
      int flags = MAP_PRIVATE | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0);
      CHECK(mmap(at, bytes, PROT_NONE, flags, -1, 0) == at && mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
      fill(at, bytes, 3);
      CHECK(filled(at, bytes, 3) && munmap(at, bytes) == 0);
    }
  }
}

// In a forked child libc reads its list of libraries with thread-local storage, which is far, when Farside's threads
// start.
static void forks_with_a_library(void) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
  CHECK(length > 0);
  path[length] = 0;
  strcpy(strrchr(path, '/'), "/aligned.so");
  void* library = dlopen(path, RTLD_NOW);  // the address of its entry in that list
  CHECK(library);
  for (int round = 0; round < 3; round++) {
    push_far(library, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      char* block = malloc(BLOCK);
      fill(block, BLOCK, 5);
      _exit(filled(block, BLOCK, 5) ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  dlclose(library);
}

// brk and sbrk: contiguous, zero when new and when taken again, kept over a fork, far.
static void program_break(void) {
  enum { kPiece = 10000, kPieces = 2000 };  // 20 MB
  char* begin = sbrk(0);
  for (int i = 0; i < kPieces; i++) {
    char* piece = sbrk(kPiece);
    CHECK(piece == begin + i * kPiece && zero(piece, kPiece));
    fill(piece, kPiece, (unsigned)i);
  }
  push_far(begin, kPiece * kPieces);
  pid_t child = fork();
  CHECK(child >= 0);
  for (int i = 0; i < kPieces; i++) CHECK(filled(begin + i * kPiece, kPiece, (unsigned)i));
  CHECK(sbrk(-BLOCK) == begin + kPiece * kPieces);
  char* again = sbrk(BLOCK);
  CHECK(again == begin + kPiece * kPieces - BLOCK);
  size_t rest = PAGE - (uintptr_t)again % PAGE;  // a part of a page is kept
  CHECK(zero(again + rest, BLOCK - rest));
  CHECK(brk(begin) == 0 && sbrk(0) == begin);
  if (child == 0) _exit(0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"fresh_is_zero", fresh_is_zero},
                                           {"unmapped_parts", unmapped_parts},
                                           {"fixed_over_far", fixed_over_far},
                                           {"remapped", remapped},
                                           {"moved_to_a_place", moved_to_a_place},
                                           {"moved_near", moved_near},
                                           {"protected", protected},
                                           {"advised", advised},
                                           {"locked", locked},
                                           {"model", model},
                                           {"many", many},
                                           {"files_over_far", files_over_far},
                                           {"sigbus_of_a_file", sigbus_of_a_file},
                                           {"aligned_library", aligned_library},
                                           {"outside", outside},
                                           {"lowest", lowest},
                                           {"program_break", program_break},
                                           {"forks_with_a_library", forks_with_a_library},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
