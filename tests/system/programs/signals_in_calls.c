// Signals that arrive anywhere in a program, most of all in its system calls: the stacks and masks of handlers, jumps
// out of calls, waits that end.
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "handlers.h"

// ---- Handlers run on the program's stack, wherever the signal arrives: garbage collectors scan from there. ----

static __thread char *stack_low, *stack_high;
static volatile int ready, done;
static int channel[2];
static volatile int in_last_wait;

static void find_own_stack(void) {
  pthread_attr_t attributes;
  void* low;
  size_t bytes;
  CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
  CHECK(pthread_attr_getstack(&attributes, &low, &bytes) == 0 && pthread_attr_destroy(&attributes) == 0);
  stack_low = low;
  stack_high = stack_low + bytes;
}

static int on_own_stack(const void* at) { return (const char*)at >= stack_low && (const char*)at < stack_high; }

static void check_stack(int number, siginfo_t* info, void* context) {
  (void)number;
  char* interrupted = (char*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RSP];
  char local;
  CHECK(on_own_stack(&local) && on_own_stack(info) && on_own_stack(interrupted) && &local < interrupted);
  volatile char touched = far_block[(size_t)count * PAGE % FAR_BYTES];
  (void)touched;
  __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
}

// Each way of waiting once, with far arguments. The writer of the channel ends the last one.
static void* wait_in_calls(void* unused) {
  find_own_stack();
  struct timespec* time = far_buffer(sizeof *time, 0);
  sigset_t* mask = far_buffer(sizeof *mask, 0);
  sigemptyset(mask);
  *time = (struct timespec){10, 0};  // the signals come much earlier, unless the machine is busy
  push_far(time, sizeof *time);
  ready = 1;
  CHECK(syscall(SYS_nanosleep, time, NULL) == -1 && errno == EINTR);
  push_far(time, sizeof *time);
  CHECK(ppoll(NULL, 0, time, mask) == -1 && errno == EINTR);
  CHECK(pselect(0, NULL, NULL, NULL, time, mask) == -1 && errno == EINTR);
  CHECK(sigsuspend(mask) == -1 && errno == EINTR);
  char* byte = far_buffer(1, 0);
  push_far(byte, 1);
  in_last_wait = 1;
  CHECK(syscall(SYS_read, channel[0], byte, 1) == 1 && *byte == 'x');  // SA_RESTART
  done = 1;
  return unused;
}

static void stack_of_waiting_threads(void) {
  far_block = far_buffer(FAR_BYTES, 6);
  handle(SIGUSR1, check_stack, SA_RESTART);
  for (int round = 0; round < 2; round++) {
    ready = done = in_last_wait = 0;
    CHECK(pipe(channel) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_in_calls, NULL) == 0);
    while (!ready) usleep(1000);
    for (int i = 0; i < 100 || !in_last_wait; i++) {
      usleep(5000);
      CHECK(pthread_kill(thread, SIGUSR1) == 0);
    }
    CHECK(!done && write(channel[1], "x", 1) == 1 && pthread_join(thread, NULL) == 0);
    CHECK(close(channel[0]) == 0 && close(channel[1]) == 0);
  }
  CHECK(count > 10);  // on a busy machine several are sent before one is handled
}

// A timer interrupts faults and calls of many kinds at any point.
static void stack_everywhere(void) {
  far_block = far_buffer(16 * MIB, 7);
  find_own_stack();
  handle(SIGALRM, check_stack, SA_RESTART);
  struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  char* path = far_buffer(PAGE, 0);
  for (size_t i = 0; count < 2000; i++) {
    char* at = far_block + i * 37 % 4096 * PAGE;
    CHECK(*at == far_block[i * 37 % 4096 * PAGE]);
    strcpy(path, "/dev/zero");
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    CHECK(fd >= 0 && syscall(SYS_lseek, fd, 0, SEEK_CUR) == 0);
    CHECK(syscall(SYS_readlink, "/proc/self/exe", path, PAGE) > 0);
    char* small = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(small != MAP_FAILED && munmap(small, 64 * PAGE) == 0 && close(fd) == 0);
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  CHECK(filled(far_block, 16 * MIB, 7));
}

// The mask of a wait lets a signal in that the program blocks otherwise; the handler sees that it will be blocked
// again.
static void note_mask_of_wait(int number, siginfo_t* info, void* context) {
  (void)info;
  CHECK(sigismember(&((ucontext_t*)context)->uc_sigmask, number));
  count++;
}

static void blocked_outside_of_waits(void) {
  handle(SIGUSR1, note_mask_of_wait, SA_RESTART);
  sigset_t blocked, none, now;
  sigemptyset(&none);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  CHECK(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
  struct timespec time = {10, 0};
  for (int i = 0; i < 60; i++) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec when = {{0, 0}, {0, i % 2 ? 2000000 : 1}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &when, NULL) == 0);
    int r = i % 3 == 0   ? sigsuspend(&none)
            : i % 3 == 1 ? ppoll(NULL, 0, &time, &none)
                         : pselect(0, NULL, NULL, NULL, &time, &none);
    CHECK(r == -1 && errno == EINTR && count == i + 1);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
    CHECK(timer_delete(timer) == 0);
  }
}

static void note_cleanup(void* argument) { *(volatile int*)argument = 1; }

static void* sleep_for_ever(void* cleaned) {
  pthread_cleanup_push(note_cleanup, cleaned);
  ready = 1;
  for (;;) nanosleep(&(struct timespec){1000, 0}, NULL);
  pthread_cleanup_pop(0);
  return NULL;
}

static void cancelled_in_a_call(void) {
  int* cleaned = far_buffer(sizeof *cleaned, 0);
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    void* result;
    ready = *cleaned = 0;
    CHECK(pthread_create(&thread, NULL, sleep_for_ever, cleaned) == 0);
    while (!ready) sched_yield();
    if (i % 2) usleep(500);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && *cleaned == 1);
  }
}

static volatile int first, second, second_was_blocked = -1;

static void note_first(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  sigset_t now;
  sigprocmask(SIG_SETMASK, NULL, &now);
  second_was_blocked = sigismember(&now, SIGUSR2);
  first++;
}

static void note_second(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  second++;
}

// No signal makes a transfer of a file short.
static void whole_transfers(void) {
  char name[] = "transfer-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  size_t bytes = 4 * MIB;
  char* block = far_buffer(bytes, 13);
  handle(SIGALRM, note_second, SA_RESTART);
  struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  for (int i = 0; i < 10; i++) {
    CHECK(syscall(SYS_pwrite64, fd, block, bytes, 0) == (long)bytes);
    CHECK(syscall(SYS_pread64, fd, block, bytes, 0) == (long)bytes);
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  CHECK(filled(block, bytes, 13) && close(fd) == 0);
}

// A wait with a mask of its own ends when the handlers of all signals that it lets in have run, with that mask.
static void several_signals_end_a_wait(void) {
  handle(SIGUSR1, note_first, 0);
  handle(SIGUSR2, note_second, 0);
  sigset_t none, both, now;
  sigemptyset(&none);
  sigemptyset(&both);
  sigaddset(&both, SIGUSR1);
  sigaddset(&both, SIGUSR2);
  CHECK(sigprocmask(SIG_SETMASK, &both, NULL) == 0);
  struct timespec time = {10, 0};
  for (int i = 1; i <= 30; i++) {
    CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR2) == 0);
    CHECK((i % 2 ? sigsuspend(&none) : ppoll(NULL, 0, &time, &none)) == -1 && errno == EINTR);
    CHECK(first == i && second == i && !second_was_blocked);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2));
  }
}

static void* sleep_until_done(void* unused) {
  while (!done) usleep(500);
  return unused;
}

static int is_pending(int number) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, number);
}

// A signal to the process is taken by a thread that does not block it, even if another thread was to be interrupted.
static void signals_of_the_process(void) {
  handle(SIGUSR1, note_second, SA_RESTART);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, sleep_until_done, NULL) == 0);
  pid_t self = getpid(), sender = fork();
  CHECK(sender >= 0);
  if (sender == 0) {
    for (;;) {
      kill(self, SIGUSR1);
      nanosleep(&(struct timespec){0, 40000}, NULL);
    }
  }
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  for (int i = 0; i < 3000; i++) {
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &one, NULL, 8) == 0);
    if (is_pending(SIGUSR1)) {
      CHECK(kill(sender, SIGSTOP) == 0);
      for (int wait = 0; wait < 1000 && is_pending(SIGUSR1); wait++) usleep(1000);
      CHECK(!is_pending(SIGUSR1));
      CHECK(kill(sender, SIGCONT) == 0);
    }
    CHECK(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &one, NULL, 8) == 0);
  }
  CHECK(kill(sender, SIGKILL) == 0 && waitpid(sender, NULL, 0) == sender);
  done = 1;
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"stack_of_waiting_threads", stack_of_waiting_threads},
                                           {"stack_everywhere", stack_everywhere},
                                           {"blocked_outside_of_waits", blocked_outside_of_waits},
                                           {"cancelled_in_a_call", cancelled_in_a_call},
                                           {"whole_transfers", whole_transfers},
                                           {"several_signals_end_a_wait", several_signals_end_a_wait},
                                           {"signals_of_the_process", signals_of_the_process},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
