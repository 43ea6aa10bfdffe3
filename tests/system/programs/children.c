// fork, vfork, posix_spawn, exec, system, popen, with far memory on both sides and far strings as arguments.
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "far.h"

#define BYTES (24 * MIB)
extern char** environ;

static int status_of(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// Parent and child write different values at the same time; each reads its own.
static void both_sides_write(void) {
  char* block = far_buffer(BYTES, 1);
  for (uint32_t round = 0; round < 3; round++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      CHECK(filled(block, BYTES, 1 + round));
      fill(block, BYTES, 1000 + round);
      push_far(block, BYTES);
      CHECK(filled(block, BYTES, 1000 + round));
      _exit(7);
    }
    CHECK(filled(block, BYTES, 1 + round));
    fill(block, BYTES, 2 + round);
    CHECK(status_of(child) == 7);
    push_far(block, BYTES);
    CHECK(filled(block, BYTES, 2 + round));
  }
}

static void parent_overwrites_first(void) {
  char* block = far_buffer(BYTES, 1);
  int go[2];
  CHECK(pipe(go) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char byte;
    CHECK(read(go[0], &byte, 1) == 1);
    CHECK(filled(block, BYTES, 1));  // as at the fork, although the parent has changed all of it and freed half
    _exit(0);
  }
  fill(block, BYTES, 2);
  push_far(block, BYTES);
  CHECK(madvise((void*)(((uintptr_t)block + PAGE) & ~(PAGE - 1)), BYTES / 2, MADV_DONTNEED) == 0);
  free(block);
  block = malloc(BYTES);
  CHECK(block);
  fill(block, BYTES, 3);
  push_far(block, BYTES);
  CHECK(write(go[1], "x", 1) == 1 && status_of(child) == 0);
  CHECK(filled(block, BYTES, 3));
}

static void generations(void) {
  char* block = far_buffer(BYTES / 2, 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    fill(block, BYTES / 4, 2);
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
      CHECK(filled(block, BYTES / 4, 2));
      push_far(block, BYTES / 4);
      fill(block, BYTES / 4, 3);
      pid_t last = fork();
      CHECK(last >= 0);
      if (last == 0) _exit(filled(block, BYTES / 4, 3) ? 11 : 12);
      CHECK(status_of(last) == 11);
      _exit(22);
    }
    fill(block, BYTES / 4, 4);
    CHECK(status_of(grandchild) == 22 && filled(block, BYTES / 4, 4));
    _exit(33);
  }
  CHECK(status_of(child) == 33 && filled(block, BYTES / 2, 1));
}

// The kernel writes the numbers of the child, in the parent and in the child, to pages that are far.
static void numbers(void) {
  for (int round = 0; round < 20; round++) {
    char* block = far_buffer(2 * PAGE, 7);
    int *in_parent = (int*)(block + 64), *in_child = (int*)(block + PAGE + 64);
    int before_in_parent = *in_parent, before_in_child = *in_child;
    push_far(block, 2 * PAGE);
    long child = syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, in_parent, in_child, 0);
    CHECK(child >= 0);
    if (child == 0) {
      int is_mine = *in_child == (int)syscall(SYS_gettid);
      *in_child = before_in_child;
      _exit(is_mine && filled(block, 2 * PAGE, 7) ? 11 : 12);
    }
    CHECK(*in_parent == child && status_of((pid_t)child) == 11);
    *in_parent = before_in_parent;
    CHECK(filled(block, 2 * PAGE, 7));
  }
}

static volatile int ends;

static void* write_on(void* argument) {
  volatile unsigned char* block = argument;
  for (uint32_t round = 1; !ends; round++) {
    for (size_t at = 0; at < BYTES && !ends; at += PAGE) *(volatile uint32_t*)(block + at) = round;
  }
  return NULL;
}

// Other threads write and cause evictions during the fork. The child's pages do not change afterwards.
static void forks_among_threads(void) {
  unsigned char* busy = calloc(1, BYTES);
  char* still = far_buffer(BYTES / 4, 5);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, write_on, busy) == 0);
  for (int round = 0; round < 10; round++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      uint64_t first = 0, second = 0;
      for (size_t at = 0; at < BYTES; at += PAGE) first = first * 31 + *(volatile uint32_t*)(busy + at);
      for (size_t at = 0; at < BYTES; at += PAGE) second = second * 31 + *(volatile uint32_t*)(busy + at);
      CHECK(first == second && filled(still, BYTES / 4, 5));
      void* more = malloc(BYTES / 4);  // malloc works in the child of a process with threads
      CHECK(more);
      memset(more, 1, BYTES / 4);
      free(more);
      _exit(3);
    }
    CHECK(status_of(child) == 3);
  }
  ends = 1;
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void many_forks(void) {
  char* block = far_buffer(MIB, 1);
  for (int round = 0; round < 60; round++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(filled(block, 8 * PAGE, 1) ? round : 99);
    CHECK(status_of(child) == round);
  }
  pid_t children[8];
  for (int i = 0; i < 8; i++) {
    children[i] = fork();
    CHECK(children[i] >= 0);
    if (children[i] == 0) _exit(filled(block, MIB, 1) ? i : 99);
  }
  for (int i = 0; i < 8; i++) CHECK(status_of(children[i]) == i);
}

static void* in_thread(void* block) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(filled(block, MIB, 1));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, (void* (*)(void*))(void*)malloc, (void*)100) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    _exit(5);
  }
  CHECK(status_of(child) == 5);
  return NULL;
}

static void fork_in_thread(void) {
  char* block = far_buffer(MIB, 1);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, in_thread, block) == 0 && pthread_join(thread, NULL) == 0);
}

// Arguments and environment of far strings, in a far array, for a shell script.
static char** far_arguments(const char* script) {
  char** arguments = malloc(4 * sizeof *arguments + 2 * PAGE);
  arguments[0] = far_string("sh");
  arguments[1] = far_string("-c");
  arguments[2] = far_string(script);
  arguments[3] = NULL;
  push_far(arguments, 4 * sizeof *arguments);
  return arguments;
}

static char** far_environment(void) {
  size_t count = 0;
  while (environ[count]) count++;
  char** copy = malloc((count + 3) * sizeof *copy);
  for (size_t i = 0; i < count; i++) copy[i] = strdup(environ[i]);
  char* large = malloc(100001);
  memset(large, 'v', 100000);
  large[100000] = 0;
  memcpy(large, "LARGE=", 6);
  copy[count] = far_string("ANSWER=7");
  copy[count + 1] = large;
  copy[count + 2] = NULL;
  push_far(large, 100000);
  push_far(copy, (count + 3) * sizeof *copy);
  return copy;
}

static const char* kScript = "test ${#LARGE} = 99994 && exit $ANSWER";

static void execs(void) {
  char** arguments = far_arguments(kScript);
  char** environment = far_environment();
  char* path = far_string("/bin/sh");
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    execve(path, arguments, environment);
    _exit(98);
  }
  CHECK(status_of(child) == 7);
  CHECK(execve(far_string("/no/such/program"), arguments, environment) == -1 && errno == ENOENT);
}

static void vforks(void) {
  char* block = far_buffer(MIB, 1);
  for (int round = 0; round < 10; round++) {
    char** arguments = far_arguments(kScript);
    char** environment = far_environment();
    char* path = far_string("/bin/sh");
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
      execve(path, arguments, environment);
      _exit(98);
    }
    CHECK(status_of(child) == 7);
    CHECK(filled(block, MIB, 1));
  }
}

static void spawns(void) {
  for (int round = 0; round < 4; round++) {
    int ends_of_pipe[2];
    CHECK(pipe(ends_of_pipe) == 0);
    posix_spawn_file_actions_t* actions = malloc(sizeof *actions + 2 * PAGE);
    CHECK(posix_spawn_file_actions_init(actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(actions, ends_of_pipe[1], 1) == 0);
    CHECK(posix_spawn_file_actions_addopen(actions, 0, far_string("/dev/null"), O_RDONLY, 0) == 0);
    CHECK(posix_spawn_file_actions_addclose(actions, ends_of_pipe[0]) == 0);
    posix_spawnattr_t* attributes = malloc(sizeof *attributes);
    CHECK(posix_spawnattr_init(attributes) == 0 && posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF) == 0);
    char** arguments = far_arguments("echo ${#LARGE}; exit $ANSWER");
    char** environment = far_environment();
    push_far(actions, sizeof *actions);
    push_far(attributes, sizeof *attributes);
    pid_t* child = malloc(sizeof *child);
    push_far(child, sizeof *child);
    CHECK(posix_spawnp(child, far_string("sh"), actions, attributes, arguments, environment) == 0);
    close(ends_of_pipe[1]);
    char* answer = far_buffer(100, 0);
    CHECK(read(ends_of_pipe[0], answer, 100) == 6 && !memcmp(answer, "99994\n", 6));
    CHECK(status_of(*child) == 7);
    close(ends_of_pipe[0]);
  }
}

static void spawn_of_nothing(void) {
  pid_t child;
  char* none[] = {(char*)"x", NULL};
  CHECK(posix_spawn(&child, far_string("/no/such/program"), NULL, NULL, none, environ) == ENOENT);
}

static void shells(void) {
  char* block = far_buffer(MIB, 1);
  for (int round = 0; round < 5; round++) {
    int status = system(far_string("exit 9"));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    FILE* stream = popen(far_string("echo far and away"), far_string("r"));
    CHECK(stream);
    char* line = far_buffer(100, 0);
    CHECK(fgets(line, 100, stream) && !strcmp(line, "far and away\n"));
    CHECK(pclose(stream) == 0);
    stream = popen("cat >/dev/null", "w");
    CHECK(stream && fwrite(block, 1, MIB, stream) == MIB && pclose(stream) == 0);
  }
  CHECK(filled(block, MIB, 1));
}

// A child that outlives its parent keeps its memory.
static void orphan(void) {
  char* block = far_buffer(BYTES / 2, 1);
  int replies[2], parent_gone[2];
  CHECK(pipe(replies) == 0 && pipe(parent_gone) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
      char byte;
      close(parent_gone[1]);
      CHECK(read(parent_gone[0], &byte, 1) == 0);  // our parent has ended
      CHECK(filled(block, BYTES / 2, 1));
      fill(block, BYTES / 2, 2);
      push_far(block, BYTES / 2);
      CHECK(filled(block, BYTES / 2, 2));
      CHECK(write(replies[1], "y", 1) == 1);
      _exit(0);
    }
    _exit(0);
  }
  close(parent_gone[1]), close(replies[1]);
  CHECK(status_of(child) == 0);
  char answer = 0;
  CHECK(read(replies[0], &answer, 1) == 1 && answer == 'y');
}

static void* exits(void* unused) {
  (void)unused;
  exit(0);
}

static void exit_in_thread(void) {
  char* block = far_buffer(BYTES, 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pthread_t thread;
    CHECK(filled(block, BYTES / 4, 1));
    CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    _exit(98);
  }
  CHECK(status_of(child) == 0);
}

// clone without the flags of a thread is a fork.
static void raw_clone(void) {
  char* block = far_buffer(MIB, 1);
  long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
  CHECK(child >= 0);
  if (child == 0) syscall(SYS_exit_group, filled(block, MIB, 1) ? 4 : 5);
  CHECK(status_of((pid_t)child) == 4);
  CHECK(filled(block, MIB, 1));
}

// ---- clone3 with CLONE_CLEAR_SIGHAND, as posix_spawn, system and popen of glibc 2.38 and newer call it ----

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

static long clone3_of(uint64_t flags, void* stack, size_t bytes) {
  struct clone_args arguments = {.flags = flags, .exit_signal = SIGCHLD, .stack = (uint64_t)stack, .stack_size = bytes};
  return syscall(SYS_clone3, &arguments, sizeof arguments);
}

static void* handler_of(int signal) {
  struct sigaction action;
  CHECK(sigaction(signal, NULL, &action) == 0);
  return (void*)action.sa_handler;
}

static void count_signal(int signal) { (void)signal, ends++; }

static void cleared_handlers(void) {
  static const int handled[] = {SIGUSR1, SIGBUS, SIGSYS, SIGSEGV};
  char* block = far_buffer(BYTES / 2, 1);
  for (int i = 0; i < 4; i++) signal(handled[i], count_signal);
  signal(SIGUSR2, SIG_IGN);
  for (int round = 0; round < 4; round++) {
    pid_t child = (pid_t)clone3_of(CLONE_CLEAR_SIGHAND | (round & 1 ? CLONE_VFORK : 0), NULL, 0);
    CHECK(child >= 0);
    if (child == 0) {
      for (int i = 0; i < 4; i++) CHECK(handler_of(handled[i]) == (void*)SIG_DFL);
      CHECK(handler_of(SIGUSR2) == (void*)SIG_IGN);
      CHECK(filled(block, BYTES / 2, 1));
      signal(SIGUSR1, count_signal);  // handlers that are set again are called
      ends = 0;
      CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR2) == 0 && ends == 1);
      pid_t grandchild = fork();
      CHECK(grandchild >= 0);
      if (grandchild == 0) _exit(filled(block, BYTES / 2, 1) ? 11 : 12);
      CHECK(status_of(grandchild) == 11);
      _exit(13);
    }
    CHECK(status_of(child) == 13);
    for (int i = 0; i < 4; i++) CHECK(handler_of(handled[i]) == (void*)count_signal);
  }
}

// A child whose default action ends it ends by that signal.
static void cleared_handlers_end(void) {
  static const int fatal[] = {SIGUSR1, SIGBUS, SIGSYS, SIGSEGV};
  for (int i = 0; i < 4; i++) {
    signal(fatal[i], count_signal);
    pid_t child = (pid_t)clone3_of(CLONE_CLEAR_SIGHAND, NULL, 0);
    CHECK(child >= 0);
    if (child == 0) {
      raise(fatal[i]);
      _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == fatal[i]);
  }
}

static volatile int alarms;

static void count_alarm(int number) {
  alarms += syscall(SYS_getppid) > 0;
  (void)number;
}

// Handlers that block all signals run at any point of a fork, in the parent and in the child.
static void forks_under_a_timer(void) {
  struct sigaction action = {.sa_handler = count_alarm, .sa_flags = SA_RESTART};
  sigfillset(&action.sa_mask);
  struct itimerval often = {{0, 500}, {0, 500}};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
  for (int round = 0; round < 100; round++) {
    sigset_t mask;
    pid_t child = fork();
    CHECK(child >= 0 && sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && !sigismember(&mask, SIGALRM));
    if (child == 0) {
      raise(SIGALRM);
      _exit(7);
    }
    CHECK(status_of(child) == 7);
  }
  CHECK(alarms > 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"both_sides_write", both_sides_write},
                                           {"parent_overwrites_first", parent_overwrites_first},
                                           {"generations", generations},
                                           {"numbers", numbers},
                                           {"forks_among_threads", forks_among_threads},
                                           {"many_forks", many_forks},
                                           {"fork_in_thread", fork_in_thread},
                                           {"execs", execs},
                                           {"vforks", vforks},
                                           {"spawns", spawns},
                                           {"spawn_of_nothing", spawn_of_nothing},
                                           {"shells", shells},
                                           {"orphan", orphan},
                                           {"exit_in_thread", exit_in_thread},
                                           {"raw_clone", raw_clone},
                                           {"cleared_handlers", cleared_handlers},
                                           {"cleared_handlers_end", cleared_handlers_end},
                                           {"forks_under_a_timer", forks_under_a_timer},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
