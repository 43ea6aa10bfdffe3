// Processes that share something with their parent, and the functions of libc that fork in their own ways; words that
// the kernel writes by itself are in far memory.
#include <linux/futex.h>
#include <linux/sched.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "far.h"

#define BYTES (8 * MIB)
#define STACK (256 * 1024)

static int status_of(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, __WALL) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

// ---- Shared memory, not a thread ----

struct shared {
  char* block;
  int calls;
};

static int count_call(void* argument) {
  struct shared* shared = argument;
  push_far(shared->block, BYTES);
  CHECK(filled(shared->block, BYTES, 1));
  fill(shared->block, BYTES, 2);
  shared->calls++;
  return 3;
}

static void wait_until_cleared(int* word) {
  struct timespec limit = {30, 0};
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != 0) {
    long r = syscall(SYS_futex, word, FUTEX_WAIT, 1, &limit, 0, 0);
    CHECK(r == 0 || errno != ETIMEDOUT);
  }
}

// The stack, the argument and the word that is cleared at the end are far.
static void shared_process(void) {
  for (int round = 0; round < 5; round++) {
    struct shared* shared = malloc(sizeof *shared);
    *shared = (struct shared){far_buffer(BYTES, 1), 0};
    char* stack = far_buffer(STACK, 1);
    int* word = far_buffer(4 * PAGE, 1);
    int *parent_number = word + PAGE / 2, *cleared = word + PAGE / 4;
    *cleared = 1;
    push_far(word, 4 * PAGE);
    int flags = CLONE_VM | CLONE_FILES | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
    pid_t child = clone(count_call, stack + STACK, flags, shared, parent_number, NULL, cleared);
    CHECK(child > 0 && *parent_number == child);
    wait_until_cleared(cleared);
    CHECK(status_of(child) == 3 && shared->calls == 1);
    CHECK(filled(shared->block, BYTES, 2));
  }
}

// The memory of a process that shares it, by the number of that process.
static void check_memory_of(pid_t process, char* block, uint32_t seed) {
  char* copy = far_buffer(BYTES, 9);
  push_far(block, BYTES);
  struct iovec here = {copy, BYTES}, there = {block, BYTES};
  CHECK(process_vm_readv(process, &here, 1, &there, 1, 0) == (ssize_t)BYTES && filled(copy, BYTES, seed));
  fill(copy, BYTES, seed + 1);
  push_far(copy, BYTES);
  CHECK(process_vm_writev(process, &here, 1, &there, 1, 0) == (ssize_t)BYTES);
  CHECK(filled(block, BYTES, seed + 1));
}

static int wait_for_end(void* unused) {
  (void)unused;
  for (;;) pause();
  return 0;
}

static void memory_of_shared_process(void) {
  char* block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(block != MAP_FAILED);
  fill(block, BYTES, 1);
  check_memory_of(getpid(), block, 1);
  static char stack[STACK];
  pid_t child = clone(wait_for_end, stack + STACK, CLONE_VM | SIGCHLD, NULL);
  CHECK(child > 0);
  check_memory_of(child, block, 2);
  struct iovec whole = {block, BYTES};
  int fd = (int)syscall(SYS_pidfd_open, child, 0);
  CHECK(fd >= 0 && syscall(SYS_process_madvise, fd, &whole, 1, MADV_COLD, 0) == (long)BYTES);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, __WALL) == child);
}

// ---- Shared memory and thread pointer, all at the same time ----

#define SHARERS 4

struct sharer {
  char* block;
  int pipe[2], ended;
};

static volatile int signals_seen;

static void note_signal(int number) {
  (void)number;
  char far_frame[4 * PAGE];
  fill(far_frame, sizeof far_frame, 1);
  signals_seen++;
}

// Faults and system calls, of which each needs state of its own thread. The stack is far.
static int use_far_memory(void* argument) {
  struct sharer* own = argument;
  for (uint32_t round = 0; round < 3; round++) {
    fill(own->block, BYTES / 2, round);
    for (size_t at = 0; at < BYTES / 2; at += 16 * PAGE) {
      CHECK(write(own->pipe[1], own->block + at, PAGE) == PAGE);
      CHECK(read(own->pipe[0], own->block + BYTES / 2 + at, PAGE) == PAGE);
      CHECK(memcmp(own->block + at, own->block + BYTES / 2 + at, PAGE) == 0);
    }
    CHECK(filled(own->block, BYTES / 2, round));
  }
  return 3;
}

static void share_thread_pointer(int flags) {
  struct sharer all[SHARERS + 1];
  pid_t children[SHARERS];
  for (int i = 0; i <= SHARERS; i++) {
    all[i] = (struct sharer){far_buffer(BYTES, 1), {-1, -1}, 1};
    CHECK(pipe(all[i].pipe) == 0);
  }
  for (int i = 0; i < SHARERS; i++) {
    char* stack = far_buffer(STACK, 1);
    children[i] =
        clone(use_far_memory, stack + STACK, flags | CLONE_CHILD_CLEARTID, &all[i], NULL, NULL, &all[i].ended);
    CHECK(children[i] > 0);
  }
  for (int i = 0; i < 50 * SHARERS; i++) {
    syscall(SYS_tkill, children[i % SHARERS], SIGUSR1);  // it may have ended
    usleep(100);
  }
  CHECK(use_far_memory(&all[SHARERS]) == 3);
  for (int i = 0; i < SHARERS; i++) {
    wait_until_cleared(&all[i].ended);
    if (!(flags & CLONE_THREAD)) CHECK(status_of(children[i]) == 3);
  }
  CHECK(signals_seen > 0);
}

static void shared_thread_pointer(void) {
  struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  share_thread_pointer(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM);
  share_thread_pointer(CLONE_VM | CLONE_FILES | SIGCHLD);
}

// ---- Shared descriptors, not memory ----

static int open_in_child(void* block) {
  CHECK(filled(block, BYTES, 1));
  fill(block, BYTES, 2);
  CHECK(filled(block, BYTES, 2) && dup2(0, 20) == 20);
  return 7;
}

static void shared_descriptors(void) {
  char* block = far_buffer(BYTES, 1);
  char* stack = malloc(STACK);
  for (int round = 0; round < 5; round++) {
    CHECK(fcntl(20, F_GETFD) == -1);
    CHECK(status_of(clone(open_in_child, stack + STACK, CLONE_FILES | SIGCHLD, block)) == 7);
    CHECK(close(20) == 0);
    push_far(block, BYTES);
    CHECK(filled(block, BYTES, 1));
  }
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(filled(block, BYTES, 1) ? 8 : 9);
  CHECK(status_of(child) == 8);
}

// ---- clone3 ----

static void clone3_numbers(void) {
  for (int round = 0; round < 10; round++) {
    char* block = far_buffer(4 * PAGE, 1);
    int *pidfd = (int*)(block + 64), *in_parent = (int*)(block + PAGE + 64), *in_child = (int*)(block + 2 * PAGE + 64);
    push_far(block, 4 * PAGE);
    struct clone_args arguments = {.flags = CLONE_PIDFD | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID,
                                   .pidfd = (uint64_t)pidfd,
                                   .parent_tid = (uint64_t)in_parent,
                                   .child_tid = (uint64_t)in_child,
                                   .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    CHECK(child >= 0);
    if (child == 0) _exit(*in_child == (int)syscall(SYS_gettid) ? 7 : 8);
    CHECK(*in_parent == child && status_of((pid_t)child) == 7 && close(*pidfd) == 0);
  }
}

static void clone3_errors(void) {
  struct clone_args arguments = {.flags = CLONE_SIGHAND, .exit_signal = SIGCHLD};
  CHECK(syscall(SYS_clone3, &arguments, sizeof arguments) == -1 && errno == EINVAL);
  CHECK(syscall(SYS_clone3, &arguments, 8) == -1 && errno == EINVAL);
  CHECK(syscall(SYS_clone3, &arguments, PAGE + 1) == -1 && errno == E2BIG);
}

// ---- Functions of libc ----

static void raw_fork(void) {
  char* block = far_buffer(BYTES, 1);
  pid_t child = _Fork();
  CHECK(child >= 0);
  if (child == 0) _exit(filled(block, BYTES, 1) ? 7 : 8);
  CHECK(status_of(child) == 7 && filled(block, BYTES, 1));
}

static void terminal(void) {
  char* block = far_buffer(BYTES, 1);
  int leader = -1;
  pid_t child = forkpty(&leader, NULL, NULL, NULL);
  CHECK(child >= 0);
  if (child == 0) _exit(isatty(0) && isatty(1) && filled(block, BYTES, 1) ? 7 : 8);
  CHECK(status_of(child) == 7 && filled(block, BYTES, 1) && close(leader) == 0);
}

static void becomes_daemon(void) {
  char* block = far_buffer(BYTES, 1);
  int answer[2];
  CHECK(pipe(answer) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(daemon(1, 1) == 0 && filled(block, BYTES, 1));
    fill(block, BYTES, 2);
    push_far(block, BYTES);
    CHECK(filled(block, BYTES, 2) && write(answer[1], "x", 1) == 1);
    _exit(0);
  }
  char byte;
  CHECK(status_of(child) == 0 && read(answer[0], &byte, 1) == 1 && byte == 'x');
}

// ---- What the kernel does when a thread ends ----

static pthread_mutex_t* mutexes[4];

static void* end_as_owner(void* unused) {
  for (int i = 0; i < 4; i++) CHECK(pthread_mutex_lock(mutexes[i]) == 0);
  for (int i = 0; i < 4; i++) push_far(mutexes[i], sizeof *mutexes[i]);
  return unused;
}

static void robust_mutexes(void) {
  pthread_mutexattr_t attributes;
  CHECK(pthread_mutexattr_init(&attributes) == 0);
  CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
  for (int i = 0; i < 4; i++) {
    mutexes[i] = (pthread_mutex_t*)((char*)malloc(4 * PAGE) + 2 * PAGE);
    CHECK(pthread_mutex_init(mutexes[i], &attributes) == 0);
  }
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, end_as_owner, NULL) == 0 && pthread_join(thread, NULL) == 0);
  struct timespec limit;
  CHECK(clock_gettime(CLOCK_REALTIME, &limit) == 0);
  limit.tv_sec += 10;
  for (int i = 0; i < 4; i++) CHECK(pthread_mutex_timedlock(mutexes[i], &limit) == EOWNERDEAD);
}

// Threads that end by the system call alone, which libc does not know. The process ends with the last one.

static void end_thread(int status) { syscall(SYS_exit, status); }

static int first_thread_runs(void) {
  char line[256] = "";
  int fd = open("/proc/self/stat", O_RDONLY);
  CHECK(fd >= 0 && read(fd, line, sizeof line - 1) > 0 && close(fd) == 0);
  return strstr(line, ") Z ") == NULL;
}

static void* end_last(void* block) {
  while (first_thread_runs()) usleep(1000);
  end_thread(filled(block, BYTES, 1) ? 5 : 6);
  return NULL;
}

static void end_one_by_one(int threads) {
  char* block = far_buffer(BYTES, 1);
  pthread_t thread;
  if (threads > 1) CHECK(pthread_create(&thread, NULL, end_last, block) == 0);
  end_thread(3);
}

static void last_thread_of_child(void) {
  for (int threads = 1; threads <= 2; threads++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) end_one_by_one(threads);
    CHECK(status_of(child) == (threads == 1 ? 3 : 5));
  }
}

static void last_thread_of_program(void) {
  for (int threads = 1; threads <= 2; threads++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) execl("/proc/self/exe", "clones", threads == 1 ? "1" : "2", NULL);
    CHECK(status_of(child) == (threads == 1 ? 3 : 5));
  }
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"shared_process", shared_process},
                                           {"memory_of_shared_process", memory_of_shared_process},
                                           {"shared_thread_pointer", shared_thread_pointer},
                                           {"shared_descriptors", shared_descriptors},
                                           {"clone3_numbers", clone3_numbers},
                                           {"clone3_errors", clone3_errors},
                                           {"raw_fork", raw_fork},
                                           {"terminal", terminal},
                                           {"becomes_daemon", becomes_daemon},
                                           {"robust_mutexes", robust_mutexes},
                                           {"last_thread_of_child", last_thread_of_child},
                                           {"last_thread_of_program", last_thread_of_program},
                                           {NULL, NULL}};
  if (argc == 2 && atoi(argv[1]) > 0) end_one_by_one(atoi(argv[1]));
  return run_case(argc, argv, cases);
}
