// Limits that a program sets for itself. Of addresses and data: within them all works, beyond them it gets ENOMEM.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "far.h"

#define GIB (1UL << 30)
#define LIMIT (2 * GIB)
#define BYTES (24 * MIB)

static void set_limit(int resource, size_t bytes) {
  struct rlimit limit = {bytes, RLIM_INFINITY}, now;
  CHECK(setrlimit(resource, &limit) == 0 && getrlimit(resource, &now) == 0);
  CHECK(now.rlim_cur == bytes && now.rlim_max == RLIM_INFINITY);
}

static void* use_stack(void* argument) {
  char block[64 * 1024];
  fill(block, sizeof block, 3);
  CHECK(filled(block, sizeof block, 3));
  return argument;
}

static void works_within(void) {
  char* block = far_buffer(BYTES, 1);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_stack, NULL) == 0 && pthread_join(thread, NULL) == 0);
  void* shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED && munmap(shared, MIB) == 0);
  CHECK(filled(block, BYTES, 1));
  free(block);
}

static void* map(size_t bytes, int protection, int flags) {
  return mmap(NULL, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);
}

static int refused(void* result) { return result == MAP_FAILED && errno == ENOMEM; }

static void fails_beyond(void) {
  errno = 0;
  CHECK(malloc(3 * GIB) == NULL && errno == ENOMEM);
  CHECK(refused(map(3 * GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE)));
  CHECK(refused(map(3 * GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE)));
  CHECK(sbrk(3 * GIB) == (void*)-1 && errno == ENOMEM);
  char* block = map(BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  CHECK(block != MAP_FAILED);
  fill(block, BYTES, 2);
  CHECK(refused(mremap(block, BYTES, 3 * GIB, MREMAP_MAYMOVE)) && filled(block, BYTES, 2));
  CHECK(munmap(block, BYTES) == 0);
}

// What is given back may be taken again, and all together is limited.
static void counts_all(void) {
  for (int round = 0; round < 3; round++) {
    char* heap = malloc(GIB);
    CHECK(heap && map(GIB + 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE) == MAP_FAILED);
    void* mapped = map(512 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    CHECK(mapped != MAP_FAILED && malloc(768 * MIB) == NULL);
    heap[round] = 1;
    CHECK(munmap(mapped, 512 * MIB) == 0);
    free(heap);
  }
}

static void in_child(void (*first)(void), void (*second)(void)) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    first();
    second();
    _exit(7);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void all(int resource) {
  works_within();
  fails_beyond();
  counts_all();
  in_child(works_within, fails_beyond);
  set_limit(resource, RLIM_INFINITY);
  void* large = map(3 * GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
  CHECK(large != MAP_FAILED && munmap(large, 3 * GIB) == 0);
}

static void addresses(void) {
  set_limit(RLIMIT_AS, LIMIT);
  CHECK(refused(map(3 * GIB, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE)));
  CHECK(refused(map(3 * GIB, PROT_READ, MAP_SHARED)));
  all(RLIMIT_AS);
}

// Of what it may write.
static void data(void) {
  set_limit(RLIMIT_DATA, LIMIT);
  void* reserved = map(3 * GIB, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE);
  CHECK(reserved != MAP_FAILED && munmap(reserved, 3 * GIB) == 0);
  all(RLIMIT_DATA);
}

static void by_prlimit(void) {
  struct rlimit wanted = {LIMIT, 4 * GIB}, old = {1, 1};
  CHECK(prlimit(0, RLIMIT_AS, &wanted, &old) == 0 && old.rlim_cur == RLIM_INFINITY && old.rlim_max == RLIM_INFINITY);
  struct rlimit* far = far_zero(sizeof *far);
  far->rlim_cur = 3 * GIB;
  far->rlim_max = 4 * GIB;
  push_far(far, sizeof *far);
  CHECK(prlimit(getpid(), RLIMIT_AS, far, far) == 0 && far->rlim_cur == LIMIT && far->rlim_max == 4 * GIB);
  CHECK(prlimit(0, RLIMIT_AS, NULL, far) == 0 && far->rlim_cur == 3 * GIB);
  wanted.rlim_cur = 5 * GIB;
  CHECK(setrlimit(RLIMIT_AS, &wanted) == -1 && errno == EINVAL);
  CHECK(setrlimit(RLIMIT_AS, (struct rlimit*)16) == -1 && errno == EFAULT);
  CHECK(getrlimit(RLIMIT_AS, (struct rlimit*)16) == -1 && errno == EFAULT);
  CHECK(getrlimit(1000, &wanted) == -1 && errno == EINVAL);
}

// A program that is started with a limit has it from its beginning.
static void of_programs(void) {
  set_limit(RLIMIT_AS, 4 * GIB);
  set_limit(RLIMIT_DATA, 3 * GIB);
  fflush(stdout);
  CHECK(system("ulimit -v; ulimit -d; seq 1 100000 | sort -R | sort -n | tail -1; dd if=/dev/zero of=/dev/null "
               "bs=5G count=1 2>&1 | grep -c memory") == 0);
}

// ---- Descriptors and sizes of files: the program's hard limits bind it, and not what Farside opens and writes. ----

static void set_both(int resource, rlim_t value) {
  struct rlimit limit = {value, value}, now, higher = {value, value + 100};
  CHECK(setrlimit(resource, &limit) == 0 && getrlimit(resource, &now) == 0);
  CHECK(now.rlim_cur == value && now.rlim_max == value);
  if (geteuid() != 0) CHECK(setrlimit(resource, &higher) == -1 && errno == EPERM);
  limit.rlim_max--;
  CHECK(setrlimit(resource, &limit) == -1 && errno == EINVAL);
}

static void check_descriptors(void) {
  int fds[32], opened = 0;
  while (opened < 32 && (fds[opened] = open("/dev/null", O_RDONLY)) >= 0) opened++;
  CHECK(opened > 0 && opened < 32 && errno == EMFILE && fds[opened - 1] == 9);
  while (opened > 0) CHECK(close(fds[--opened]) == 0);
}

static void check_file_size(void) {
  char name[] = "/tmp/farside-limits-XXXXXX";
  int fd = mkstemp(name);
  char* block = far_buffer(100000, 1);
  CHECK(fd >= 0 && unlink(name) == 0);
  CHECK(write(fd, block, 100000) == 8192 && write(fd, block, 1) == -1 && errno == EFBIG);
  CHECK(ftruncate(fd, 8193) == -1 && errno == EFBIG && close(fd) == 0);
  free(block);
}

static void with_children(int resource, rlim_t limit, void (*check)(void)) {
  set_both(resource, limit);
  check();
  for (int round = 0; round < 3; round++) in_child(check, works_within);
  fflush(stdout);
  CHECK(system("ulimit -n; ulimit -f; seq 1 100000 | sort -R | sort -n | tail -1") == 0);
}

static void descriptors(void) { with_children(RLIMIT_NOFILE, 10, check_descriptors); }

// A child has all descriptors that it may have before it needs far memory. (Where that is not a great number.)
static void all_descriptors(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int last = 0, opened = 0, fd;
    for (; opened < 1024 && (fd = dup(0)) >= 0; opened++) last = fd;
    CHECK(opened > 0);
    char* blocks[10];
    for (int i = 0; i < 10; i++) fill(blocks[i] = malloc(MIB), MIB, (uint32_t)i);
    for (fd = last; fd > 2; fd--) close(fd);
    push_far(blocks[0], MIB);
    for (int i = 0; i < 10; i++) CHECK(filled(blocks[i], MIB, (uint32_t)i));
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void file_size(void) {
  CHECK(signal(SIGXFSZ, SIG_IGN) == SIG_DFL);
  with_children(RLIMIT_FSIZE, 8192, check_file_size);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"addresses", addresses},     {"data", data},
                                           {"by_prlimit", by_prlimit},   {"of_programs", of_programs},
                                           {"descriptors", descriptors}, {"all_descriptors", all_descriptors},
                                           {"file_size", file_size},     {NULL, NULL}};
  return run_case(argc, argv, cases);
}
