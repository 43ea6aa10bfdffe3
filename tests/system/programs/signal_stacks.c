// Handlers of signals that interrupt code on stacks in far memory: the kernel's frame goes to pages that are far.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "far.h"

#define STACK (96 * 1024)

static ucontext_t outside, inside;
static char* stack;
static volatile int count;
static sigjmp_buf back;

static void handle(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  CHECK(sigaction(number, &action, NULL) == 0);
}

// Runs a function on a stack from malloc, of which only the first page was touched.
static void run_inside(void (*function)(void)) {
  stack = malloc(STACK);
  CHECK(stack && getcontext(&inside) == 0);
  inside.uc_stack.ss_sp = stack;
  inside.uc_stack.ss_size = STACK;
  inside.uc_link = &outside;
  makecontext(&inside, function, 0);
  CHECK(swapcontext(&outside, &inside) == 0);
}

static int on_stack(const void* at) { return (const char*)at >= stack && (const char*)at < stack + STACK; }

static void note(int number, siginfo_t* info, void* context) {
  CHECK(info->si_signo == number && on_stack(&number) && on_stack(info) && on_stack(context));
  count++;
}

static void wait_for_timer(void) {
  while (!count) continue;
}

static void first_signal(void) {
  handle(SIGALRM, note, 0);
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 50000}}, NULL) == 0);
  run_inside(wait_for_timer);
  CHECK(count == 1);
}

// Evicts all that is not used meanwhile. The page of the caller's frame returns as often as it is evicted.
static void evict_all(void) {
  static volatile char* page;
  if (!page) page = malloc(2 * PAGE);
  page[PAGE]++;
  push_far((char*)page + PAGE, 1);
}

// The frame becomes far while the handler runs; all registers are restored from it.
static void lose_frame(int number, siginfo_t* info, void* context) {
  note(number, info, context);
  evict_all();
}

static void keep_registers(void) {
  double product = 1;
  unsigned long sum = 0;
  for (int i = 0; i < 8; i++) {
    double factor = i + 0.5;
    CHECK(raise(SIGUSR1) == 0);
    product *= factor;
    sum = sum * 31 + (unsigned long)i;
    long rbx = 1234567 + i, kept;
    __asm__ volatile("movq %1, %%rbx\n movq %1, %%xmm5\n movq %2, %%rdi\n call raise\n movq %%rbx, %0\n"
                     : "=r"(kept)
                     : "r"(rbx), "r"((long)SIGUSR1)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm5", "memory", "cc");
    CHECK(kept == rbx);
  }
  CHECK(product == 0.5 * 1.5 * 2.5 * 3.5 * 4.5 * 5.5 * 6.5 * 7.5);
}

static void frame_becomes_far(void) {
  handle(SIGUSR1, lose_frame, 0);
  run_inside(keep_registers);
  CHECK(count == 16);
}

// Vector registers of code that is interrupted without a call, and a register that the handler changes in the frame.
static void change_register(int number, siginfo_t* info, void* context) {
  lose_frame(number, info, context);
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_R12] = 77;
}

static void spin(void) {
  long seen, vector;
  __asm__ volatile(
      "xorl %%r12d, %%r12d\n movl $4711, %%eax\n movq %%rax, %%xmm7\n"
      "1: testq %%r12, %%r12\n jz 1b\n movq %%r12, %0\n movq %%xmm7, %1\n"
      : "=r"(seen), "=r"(vector)
      :
      : "rax", "r12", "xmm7", "cc");
  CHECK(seen == 77 && vector == 4711);
}

static void changed_frame(void) {
  handle(SIGALRM, change_register, 0);
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 50000}}, NULL) == 0);
  run_inside(spin);
}

// The handler switches away, as preemptive coroutines do; the frame and all below it become far; it is resumed.
static void switch_away(int number, siginfo_t* info, void* context) {
  note(number, info, context);
  CHECK(swapcontext(&inside, &outside) == 0);
}

static void raise_often(void) {
  for (int i = 0; i < 5; i++) CHECK(raise(SIGUSR1) == 0);
}

static void preempted(void) {
  handle(SIGUSR1, switch_away, SA_NODEFER);
  run_inside(raise_often);
  for (int i = 1; i <= 5; i++) {
    CHECK(count == i);
    push_far(stack, STACK);
    CHECK(swapcontext(&outside, &inside) == 0);
  }
}

static void jump(int number, siginfo_t* info, void* context) {
  note(number, info, context);
  siglongjmp(back, 1);
}

static void catch_jumps(void) {
  for (volatile int i = 0; i < 20; i++) {
    push_far(stack, STACK / 2);
    if (!sigsetjmp(back, 1)) {
      raise(SIGUSR1);
      CHECK(!"the handler returned");
    }
    CHECK(count == i + 1);
  }
}

static void jumps(void) {
  handle(SIGUSR1, jump, 0);
  run_inside(catch_jumps);
}

static void raise_second(int number, siginfo_t* info, void* context) {
  note(number, info, context);
  int before = count;
  CHECK(raise(SIGUSR2) == 0 && count == before + 1);
}

static void raise_first(void) {
  for (int i = 0; i < 20; i++) {
    push_far(stack, STACK / 2);
    CHECK(raise(SIGUSR1) == 0 && count == 2 * (i + 1));
  }
}

static void nested(void) {
  handle(SIGUSR1, raise_second, 0);
  handle(SIGUSR2, lose_frame, 0);
  run_inside(raise_first);
}

// An error of the code on the far stack: the handler repairs it, and the access is repeated.
static char* closed;

static void open_page(int number, siginfo_t* info, void* context) {
  lose_frame(number, info, context);
  CHECK(info->si_addr == closed + 5 && mprotect(closed, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void touch_closed(void) {
  for (int i = 0; i < 10; i++) {
    CHECK(mprotect(closed, PAGE, PROT_NONE) == 0);
    ((volatile char*)closed)[5]++;
  }
}

static void repaired_error(void) {
  closed = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(closed != MAP_FAILED);
  handle(SIGSEGV, open_page, 0);
  run_inside(touch_closed);
  CHECK(count == 10 && closed[5] == 10);
}

// ---- Many coroutines and a timer ----

enum { COROUTINES = 100, ROUNDS = 20, LOCAL = 30000 };
static ucontext_t* coroutines[COROUTINES];
static long sums[COROUTINES];

static void count_tick(int number) {
  volatile char room[600];
  room[number] = 1;
  count += room[number];
}

static void work(int self) {
  volatile char local[LOCAL];
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < LOCAL; i += 500) local[i] = (char)(self + round);
    CHECK(swapcontext(coroutines[self], &outside) == 0);
    for (int i = 0; i < LOCAL; i += 500) sums[self] += local[i] == (char)(self + round);
  }
}

static void among_coroutines(void) {
  for (int i = 0; i < COROUTINES; i++) {
    ucontext_t* c = coroutines[i] = malloc(sizeof *c);
    CHECK(c && getcontext(c) == 0);
    c->uc_stack.ss_size = STACK;
    c->uc_stack.ss_sp =
        i % 2 ? malloc(STACK) : mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    c->uc_link = &outside;
    makecontext(c, (void (*)(void))work, 1, i);
  }
  signal(SIGALRM, count_tick);
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL) == 0);
  for (int round = 0; round <= ROUNDS; round++) {
    for (int i = 0; i < COROUTINES; i++) CHECK(swapcontext(&outside, coroutines[i]) == 0);
  }
  for (int i = 0; i < COROUTINES; i++) CHECK(sums[i] == ROUNDS * (LOCAL / 500));
  while (!count) continue;
}

// ---- Calls of the allocator on a stack in far memory ----

static __attribute__((noinline)) void use_deep_stack(void) {
  volatile char deep[STACK / 2];
  for (size_t i = 0; i < sizeof deep; i += 64) deep[i] = 1;
}

// The pages below this frame are far, so the calls that free() makes meet one of them at any depth.
static __attribute__((noinline)) void free_at_depth(size_t depth) {
  volatile char* room = alloca(depth + 1);
  room[depth] = 1;
  char* block = malloc(MIB);
  CHECK(block);
  memset(block, 1, MIB);
  push_far(block, MIB);
  free(block);
}

static void free_inside(void) {
  for (size_t depth = 0; depth < PAGE; depth += 256) {
    use_deep_stack();
    free_at_depth(depth);
  }
  count++;
}

static void freed_on_far_stack(void) {
  run_inside(free_inside);
  CHECK(count == 1);
}

// The same in a child, whose handlers were installed by its parent.
static void in_a_child(void) {
  signal(SIGALRM, count_tick);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    among_coroutines();
    _exit(7);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

// ---- Alternate stacks and stacks of threads in far memory ----

static void* other_stack;

static void on_other_stack(int number, siginfo_t* info, void* context) {
  CHECK(info->si_signo == number && !on_stack(&number) && !on_stack(context));
  push_far(other_stack, STACK);
  count++;
}

static void raise_on_other(void) {
  for (int i = 0; i < 10; i++) {
    push_far(other_stack, STACK);
    CHECK(raise(SIGUSR1) == 0 && count == i + 1);
  }
}

static void far_alternate_stack(void) {
  other_stack = far_buffer(STACK, 1);
  CHECK(sigaltstack(&(stack_t){.ss_sp = other_stack, .ss_size = STACK}, NULL) == 0);
  handle(SIGUSR1, on_other_stack, SA_ONSTACK);
  run_inside(raise_on_other);
}

// SA_ONSTACK without an alternate stack: the handler runs on the stack of the code that it interrupts.
static void no_alternate_stack(void) {
  handle(SIGUSR1, lose_frame, SA_ONSTACK);
  run_inside(raise_often);
  CHECK(count == 5);
}

static void* raise_in_thread(void* unused) {
  for (int i = 0; i < 10; i++) {
    push_far(stack, STACK / 4);
    CHECK(raise(SIGUSR1) == 0 && count == i + 1);
  }
  return unused;
}

static void stack_of_a_thread(void) {
  CHECK(posix_memalign((void**)&stack, PAGE, STACK) == 0);
  handle(SIGUSR1, note, 0);
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0);
  CHECK(pthread_create(&thread, &attributes, raise_in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"first_signal", first_signal},
                                           {"frame_becomes_far", frame_becomes_far},
                                           {"changed_frame", changed_frame},
                                           {"preempted", preempted},
                                           {"jumps", jumps},
                                           {"nested", nested},
                                           {"repaired_error", repaired_error},
                                           {"among_coroutines", among_coroutines},
                                           {"in_a_child", in_a_child},
                                           {"freed_on_far_stack", freed_on_far_stack},
                                           {"far_alternate_stack", far_alternate_stack},
                                           {"no_alternate_stack", no_alternate_stack},
                                           {"stack_of_a_thread", stack_of_a_thread},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
