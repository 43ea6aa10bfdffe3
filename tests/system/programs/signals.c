// Signal handlers, alternate stacks, jumps and masks of a program, with far memory in all of them.
#include <pthread.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "handlers.h"

static sigjmp_buf back;
static siginfo_t seen;

static void remember(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  seen = *info;
  siglongjmp(back, 1);
}

static void own_sigbus(void) {
  far_block = far_buffer(FAR_BYTES, 1);
  char name[] = "/tmp/farside-signals-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 2 * PAGE) == 0);
  char* file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(file != MAP_FAILED && ftruncate(fd, PAGE) == 0);
  handle(SIGBUS, remember, 0);
  struct sigaction now;
  CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == remember && (now.sa_flags & SA_SIGINFO));
  for (int i = 0; i < 200; i++) {
    if (!sigsetjmp(back, 1)) {
      ((volatile char*)file)[PAGE + 7] = 1;
      CHECK(!"no SIGBUS came");
    }
    CHECK(seen.si_signo == SIGBUS && seen.si_code == BUS_ADRERR && seen.si_addr == file + PAGE + 7);
    CHECK(filled(far_block, PAGE, 1));
  }
  push_far(far_block, FAR_BYTES);
  CHECK(filled(far_block, FAR_BYTES, 1));  // the program's handler must not be called for these
}

static void own_sigsegv(void) {
  far_block = far_buffer(FAR_BYTES, 2);
  handle(SIGSEGV, remember, 0);
  char* gone = mmap(NULL, FAR_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(gone != MAP_FAILED);
  fill(gone, FAR_BYTES, 3);
  push_far(gone, FAR_BYTES);
  CHECK(munmap(gone, FAR_BYTES) == 0);
  for (int i = 0; i < 200; i++) {
    volatile char* at = i % 2 ? gone + i * PAGE + i : NULL;
    if (!sigsetjmp(back, 1)) {
      *at = 1;
      CHECK(!"no SIGSEGV came");
    }
    CHECK(seen.si_signo == SIGSEGV && seen.si_addr == (void*)at);
    CHECK(at ? seen.si_code == SEGV_MAPERR || seen.si_code == SEGV_ACCERR : seen.si_code == SEGV_MAPERR);  // reserved
  }
  CHECK(filled(far_block, FAR_BYTES, 2));
}

static void ignored_sigbus(void) {
  far_block = far_buffer(FAR_BYTES, 4);
  CHECK(signal(SIGBUS, SIG_IGN) != SIG_ERR);
  CHECK(filled(far_block, FAR_BYTES, 4));
  push_far(far_block, FAR_BYTES);
  CHECK(signal(SIGBUS, SIG_DFL) == SIG_IGN);
  CHECK(filled(far_block, FAR_BYTES, 4));
}

static void all_blocked(void) {
  far_block = far_buffer(FAR_BYTES, 5);
  sigset_t all, now;
  sigfillset(&all);
  CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
  CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && sigismember(&now, SIGTERM));
  CHECK(filled(far_block, FAR_BYTES, 5));
  push_far(far_block, FAR_BYTES);
  CHECK(raise(SIGUSR1) == 0);
  sigset_t* far_set = far_buffer(sizeof *far_set, 0);
  sigemptyset(far_set);
  sigaddset(far_set, SIGUSR1);
  push_far(far_set, sizeof *far_set);
  CHECK(sigwaitinfo(far_set, NULL) == SIGUSR1);
  CHECK(filled(far_block, FAR_BYTES, 5));
}

static void touch_far(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  for (size_t at = 0; at < FAR_BYTES; at += 16 * PAGE)
    CHECK(filled(far_block, 64, 6) && far_block[at] == far_block[at]);
  char local[160 * 1024];  // the alternate stack must have the size that the program set
  memcpy(local, far_block + FAR_BYTES / 2, sizeof local);
  CHECK(!memcmp(local, far_block + FAR_BYTES / 2, sizeof local));
  count++;
}

// The handler runs on a stack from malloc that is far when the signal arrives.
static void alternate_stack(void) {
  far_block = far_buffer(FAR_BYTES, 6);
  size_t bytes = 256 * 1024;
  stack_t stack = {.ss_sp = far_buffer(bytes, 0), .ss_size = bytes}, now;
  CHECK(sigaltstack(&stack, NULL) == 0);
  CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack.ss_sp && now.ss_size == bytes && now.ss_flags == 0);
  handle(SIGUSR1, touch_far, SA_ONSTACK);
  for (int i = 0; i < 10; i++) {
    push_far(far_block, FAR_BYTES);
    CHECK(raise(SIGUSR1) == 0);
  }
  CHECK(count == 10);
  // The limit is the kernel's; libc's SIGSTKSZ grows with the processor's registers.
  stack.ss_size = 5120;
  CHECK(sigaltstack(&stack, NULL) == 0);
  stack.ss_size = 2047;
  CHECK(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM);
}

static int runs_on(const stack_t* stack, const void* at) {
  return (const char*)at >= (char*)stack->ss_sp && (const char*)at < (char*)stack->ss_sp + stack->ss_size;
}

// A handler on an alternate stack finds that stack by sigaltstack, as Go's does, also when it interrupts itself.
static void look_for_stack(int number, siginfo_t* info, void* context) {
  ucontext_t* interrupted = context;
  stack_t now, other = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK && runs_on(&now, &other) && runs_on(&now, info));
  CHECK(interrupted->uc_stack.ss_sp == now.ss_sp && interrupted->uc_stack.ss_size == now.ss_size);
  CHECK(sigaltstack(&other, NULL) == -1 && errno == EPERM);
  if (++count % 4 != 0) CHECK(raise(number) == 0);
  CHECK(filled(far_block, FAR_BYTES, 6));
}

static void* find_stack(void* memory) {
  stack_t stack = {.ss_sp = memory, .ss_size = 128 * 1024}, now, none = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(&stack, NULL) == 0);
  handle(SIGUSR1, look_for_stack, SA_ONSTACK | SA_NODEFER);
  for (int i = 0; i < 20; i++) {
    push_far(far_block, FAR_BYTES);
    CHECK(raise(SIGUSR1) == 0);
  }
  CHECK(sigaltstack(&none, &now) == 0 && now.ss_sp == memory && now.ss_size == stack.ss_size && now.ss_flags == 0);
  CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_DISABLE);
  return NULL;
}

static void stack_of_a_handler(void) {
  far_block = far_buffer(FAR_BYTES, 6);
  static char near[128 * 1024];
  find_stack(near);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, find_stack, far_buffer(128 * 1024, 0)) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  pid_t child = fork();
  if (child == 0) {
    find_stack(near);
    _exit(0);
  }
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(count == 160);
}

static void overflowed(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  seen = *info;
  siglongjmp(back, 1);
}

static int recurse(int depth) {
  volatile char frame[4096];
  frame[0] = (char)depth;
  return depth < 0 ? 0 : recurse(depth + 1) + frame[0];
}

// A stack overflow is delivered on the alternate stack, which is far.
static void stack_overflow(void) {
  far_block = far_buffer(FAR_BYTES, 6);
  stack_t stack = {.ss_sp = far_block, .ss_size = FAR_BYTES};
  CHECK(sigaltstack(&stack, NULL) == 0);
  handle(SIGSEGV, overflowed, SA_ONSTACK);
  if (!sigsetjmp(back, 1)) CHECK(recurse(0) == -1);
  CHECK(seen.si_signo == SIGSEGV);
}

static void jump(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  count++;
  siglongjmp(back, 1);
}

// A timer interrupts accesses to far memory at any point, and its handler jumps out.
static void jumps_out_of_faults(void) {
  size_t bytes = 16 * MIB;
  far_block = far_buffer(bytes, 7);
  handle(SIGALRM, jump, 0);
  struct itimerval every = {{0, 1500}, {0, 1500}}, never = {{0, 0}, {0, 0}};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  while (count < 300) {
    sigsetjmp(back, 1);
    if (count >= 300) break;
    volatile char* at = far_block;
    for (size_t i = 0; i < bytes; i += PAGE) at[i] = at[i];
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  CHECK(filled(far_block, bytes, 7));
}

static void* reader(void* unused) {
  (void)unused;
  for (int i = 0; i < 4; i++) CHECK(filled(far_block, 8 * MIB, 8));
  return NULL;
}

static void count_signal(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  volatile char touched = far_block[(size_t)count * PAGE % (8 * MIB)];
  (void)touched;
  count++;
}

// Many signals to threads that read far memory; the handler reads far memory, too.
static void signals_to_threads(void) {
  far_block = far_buffer(8 * MIB, 8);
  handle(SIGUSR2, count_signal, SA_RESTART);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, reader, NULL) == 0);
  for (int i = 0; i < 3000; i++) pthread_kill(threads[i % 3], SIGUSR2);
  for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(count > 0);
}

static void* on_far_stack(void* argument) {
  volatile char local[64 * 1024];
  for (size_t i = 0; i < sizeof local; i++) local[i] = (char)i;
  CHECK(filled(argument, FAR_BYTES, 9));
  for (size_t i = 0; i < sizeof local; i++) CHECK(local[i] == (char)i);
  return argument;
}

// A thread on a stack from malloc.
static void thread_stack_from_malloc(void) {
  far_block = far_buffer(FAR_BYTES, 9);
  size_t bytes = 1 * MIB;
  void* stack = aligned_alloc(PAGE, bytes);
  CHECK(stack);
  memset(stack, 1, bytes);
  push_far(stack, bytes);
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, bytes) == 0);
  pthread_t thread;
  void* result = NULL;
  CHECK(pthread_create(&thread, &attributes, on_far_stack, far_block) == 0);
  CHECK(pthread_join(thread, &result) == 0 && result == far_block);
  free(stack);
}

static ucontext_t main_context, coroutine_context;

static void coroutine(void) {
  for (int i = 0; i < 20; i++) {
    CHECK(filled(far_block, FAR_BYTES / 8, 10));
    CHECK(swapcontext(&coroutine_context, &main_context) == 0);
  }
}

// A coroutine on a stack from malloc, which is evicted while the coroutine is suspended.
static void coroutine_on_malloc_stack(void) {
  far_block = far_buffer(FAR_BYTES, 10);
  size_t bytes = 256 * 1024;
  CHECK(getcontext(&coroutine_context) == 0);
  coroutine_context.uc_stack.ss_sp = malloc(bytes);
  coroutine_context.uc_stack.ss_size = bytes;
  coroutine_context.uc_link = &main_context;
  makecontext(&coroutine_context, coroutine, 0);
  for (int i = 0; i < 20; i++) {
    push_far(coroutine_context.uc_stack.ss_sp, bytes);
    CHECK(swapcontext(&main_context, &coroutine_context) == 0);
  }
}

// Far memory is served under the signal mask of a sleeping call, too.
static void masks_of_sleepers(void) {
  far_block = far_buffer(FAR_BYTES, 6);
  handle(SIGALRM, touch_far, 0);
  struct itimerval once = {{0, 0}, {0, 20000}};
  sigset_t* mask = far_buffer(sizeof *mask, 0);
  sigfillset(mask);
  sigdelset(mask, SIGALRM);
  push_far(mask, sizeof *mask);
  CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
  CHECK(sigsuspend(mask) == -1 && errno == EINTR && count == 1);
}

static void timers_and_values(void) {
  far_block = far_buffer(FAR_BYTES, 6);
  handle(SIGRTMIN, touch_far, 0);
  struct sigevent* event = calloc(1, sizeof *event + PAGE);
  event->sigev_notify = SIGEV_SIGNAL;
  event->sigev_signo = SIGRTMIN;
  push_far(event, sizeof *event);
  timer_t* timer = far_buffer(sizeof *timer, 0);
  CHECK(timer_create(CLOCK_MONOTONIC, event, timer) == 0);
  struct itimerspec* when = calloc(1, sizeof *when + PAGE);
  when->it_value.tv_nsec = when->it_interval.tv_nsec = 2000000;
  push_far(when, sizeof *when);
  CHECK(timer_settime(*timer, 0, when, NULL) == 0);
  while (count < 5) CHECK(filled(far_block, FAR_BYTES / 4, 6));
  CHECK(timer_delete(*timer) == 0);
}

// The child ends by the default action of SIGSEGV.
static void default_action(void) {
  far_block = far_buffer(FAR_BYTES, 1);
  for (int number = 0; number < 2; number++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      if (number) CHECK(filled(far_block, FAR_BYTES, 1));
      *(volatile char*)NULL = 1;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  }
}

static sigset_t mask_inside;

static void note_mask(int number, siginfo_t* info, void* context) {
  (void)info, (void)context;
  CHECK(sigprocmask(SIG_SETMASK, NULL, &mask_inside) == 0 && number == SIGUSR1);
  count++;
}

// The semantics of sigaction: the action can be read back, its mask applies in the handler only, SA_NODEFER leaves the
// signal unblocked, SA_RESETHAND applies to one delivery.
static void actions(void) {
  struct sigaction action = {.sa_sigaction = note_mask, .sa_flags = SA_SIGINFO | SA_RESETHAND}, now;
  sigset_t outside;
  sigaddset(&action.sa_mask, SIGUSR2);
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR1, NULL, &now) == 0);
  CHECK(now.sa_sigaction == note_mask && (now.sa_flags & SA_RESETHAND) && sigismember(&now.sa_mask, SIGUSR2));
  CHECK(raise(SIGUSR1) == 0 && count == 1);
  CHECK(sigismember(&mask_inside, SIGUSR1) && sigismember(&mask_inside, SIGUSR2));
  CHECK(!sigismember(&mask_inside, SIGTERM));
  CHECK(sigprocmask(SIG_SETMASK, NULL, &outside) == 0 && !sigismember(&outside, SIGUSR1) &&
        !sigismember(&outside, SIGUSR2));
  CHECK(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL && (now.sa_flags & SA_SIGINFO) &&
        sigismember(&now.sa_mask, SIGUSR2));
  handle(SIGUSR1, note_mask, SA_NODEFER);
  for (int i = 0; i < 2; i++) CHECK(raise(SIGUSR1) == 0);
  CHECK(count == 3 && !sigismember(&mask_inside, SIGUSR1));
  CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR && raise(SIGUSR1) == 0 && count == 3);
  CHECK(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
}

static volatile sig_atomic_t order[4];

static void note_order(int number, siginfo_t* info, void* context) {
  (void)context;
  CHECK(info->si_code == SI_QUEUE);
  volatile char touched = far_block[(size_t)info->si_value.sival_int % FAR_BYTES];
  (void)touched;
  CHECK(info->si_value.sival_int == order[number - SIGRTMIN]);
  order[number - SIGRTMIN]++;
  count++;
}

static void* send_queued(void* target) {
  for (int i = 0; i < 400; i++) {
    union sigval value = {.sival_int = i};
    for (int number = 0; number < 4; number++) {
      while (pthread_sigqueue(*(pthread_t*)target, SIGRTMIN + number, value) != 0) sched_yield();
    }
    usleep(100);
  }
  return NULL;
}

// Queued signals that arrive during faults are neither lost nor duplicated, and those of one number stay in order.
static void queued_signals(void) {
  far_block = far_buffer(16 * MIB, 12);
  for (int number = 0; number < 4; number++) handle(SIGRTMIN + number, note_order, SA_RESTART);
  pthread_t self = pthread_self(), sender;
  CHECK(pthread_create(&sender, NULL, send_queued, &self) == 0);
  while (count < 1600) CHECK(filled(far_block, 16 * MIB, 12));
  CHECK(pthread_join(sender, NULL) == 0 && count == 1600);
}

// Handlers that jump out of calls in progress.
static void jumps_out_of_calls(void) {
  handle(SIGALRM, jump, 0);
  struct itimerval every = {{0, 1500}, {0, 1500}}, never = {{0, 0}, {0, 0}};
  struct timespec* time = far_buffer(sizeof *time, 0);
  *time = (struct timespec){1, 0};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  while (count < 300) {
    sigsetjmp(back, 1);
    if (count >= 300) break;
    syscall(SYS_nanosleep, time, NULL);
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  CHECK(syscall(SYS_getppid) > 0);
}

// As queued_signals, but the signals arrive during calls.
static void queued_signals_in_calls(void) {
  far_block = far_buffer(16 * MIB, 12);
  for (int number = 0; number < 4; number++) handle(SIGRTMIN + number, note_order, SA_RESTART);
  pthread_t self = pthread_self(), sender;
  CHECK(pthread_create(&sender, NULL, send_queued, &self) == 0);
  struct timespec* time = far_buffer(sizeof *time, 0);
  for (size_t i = 0; count < 1600; i++) {
    *time = (struct timespec){0, 2000};
    syscall(SYS_nanosleep, time, NULL);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, far_block + i * 37 % 4096 * PAGE) == 0);
  }
  CHECK(pthread_join(sender, NULL) == 0 && count == 1600);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"own_sigbus", own_sigbus},
                                           {"own_sigsegv", own_sigsegv},
                                           {"ignored_sigbus", ignored_sigbus},
                                           {"all_blocked", all_blocked},
                                           {"alternate_stack", alternate_stack},
                                           {"stack_of_a_handler", stack_of_a_handler},
                                           {"stack_overflow", stack_overflow},
                                           {"jumps_out_of_faults", jumps_out_of_faults},
                                           {"signals_to_threads", signals_to_threads},
                                           {"thread_stack_from_malloc", thread_stack_from_malloc},
                                           {"coroutine_on_malloc_stack", coroutine_on_malloc_stack},
                                           {"masks_of_sleepers", masks_of_sleepers},
                                           {"timers_and_values", timers_and_values},
                                           {"default_action", default_action},
                                           {"actions", actions},
                                           {"queued_signals", queued_signals},
                                           {"jumps_out_of_calls", jumps_out_of_calls},
                                           {"queued_signals_in_calls", queued_signals_in_calls},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
