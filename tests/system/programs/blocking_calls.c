// System calls that wait, with arguments in far memory: polls, futexes, locks; cancelled and interrupted ones.
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "far.h"

static void waiting(void) {
  int* ends = far_zero(2 * sizeof *ends);
  CHECK(pipe(ends) == 0);
  struct pollfd* polled = far_zero(sizeof *polled);
  *polled = (struct pollfd){ends[0], POLLIN, 0};
  push_far(polled, sizeof *polled);
  CHECK(poll(polled, 1, 0) == 0);
  int epoll = epoll_create1(0);
  struct epoll_event* event = far_zero(sizeof *event);
  event->events = EPOLLIN;
  event->data.u64 = 77;
  push_far(event, sizeof *event);
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], event) == 0);
  CHECK(write(ends[1], "x", 1) == 1);
  push_far(polled, sizeof *polled);
  CHECK(poll(polled, 1, -1) == 1 && polled->revents == POLLIN);
  struct timespec* limit = far_zero(sizeof *limit);
  limit->tv_sec = 5;
  push_far(limit, sizeof *limit);
  CHECK(ppoll(polled, 1, limit, NULL) == 1);
  struct epoll_event* events = far_zero(64 * sizeof *events);
  CHECK(epoll_wait(epoll, events, 64, 5000) == 1 && events[0].data.u64 == 77);
  push_far(events, 64 * sizeof *events);
  CHECK(epoll_pwait(epoll, events, 64, 5000, NULL) == 1 && events[0].events == EPOLLIN);
  fd_set* set = far_zero(sizeof *set);
  FD_SET(ends[0], set);
  struct timeval* timeout = far_zero(sizeof *timeout);
  timeout->tv_sec = 5;
  push_far(set, sizeof *set);
  CHECK(select(ends[0] + 1, set, NULL, NULL, timeout) == 1 && FD_ISSET(ends[0], set));
  uint64_t* value = far_zero(sizeof *value);
  int counter = eventfd(0, 0);
  *value = 5;
  push_far(value, sizeof *value);
  CHECK(write(counter, value, 8) == 8);
  *value = 0;
  push_far(value, sizeof *value);
  CHECK(read(counter, value, 8) == 8 && *value == 5);
  struct itimerspec* when = far_zero(sizeof *when);
  when->it_value.tv_nsec = 1000;
  push_far(when, sizeof *when);
  int timer = timerfd_create(CLOCK_MONOTONIC, 0);
  CHECK(timerfd_settime(timer, 0, when, NULL) == 0 && read(timer, value, 8) == 8 && *value == 1);
}

static uint32_t* futex_word;

static void* waker(void* unused) {
  (void)unused;
  __atomic_store_n(futex_word, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, futex_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  return NULL;
}

static void futexes(void) {
  for (int i = 0; i < 50; i++) {
    futex_word = far_zero(sizeof *futex_word);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waker, NULL) == 0);
    while (!__atomic_load_n(futex_word, __ATOMIC_SEQ_CST)) {
      syscall(SYS_futex, futex_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    free(futex_word);
  }
}

// Locks and conditions in far memory, which is evicted meanwhile.
struct shared {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int turn;
  long sum;
};

static void* take_turns(void* argument) {
  struct shared* s = argument;
  for (int i = 0; i < 200; i++) {
    CHECK(pthread_mutex_lock(&s->mutex) == 0);
    while (s->turn != 1) CHECK(pthread_cond_wait(&s->changed, &s->mutex) == 0);
    s->sum++, s->turn = 0;
    CHECK(pthread_cond_signal(&s->changed) == 0 && pthread_mutex_unlock(&s->mutex) == 0);
  }
  return NULL;
}

static void locks(void) {
  struct shared* s = far_zero(sizeof *s);
  CHECK(pthread_mutex_init(&s->mutex, NULL) == 0 && pthread_cond_init(&s->changed, NULL) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, take_turns, s) == 0);
  for (int i = 0; i < 200; i++) {
    CHECK(pthread_mutex_lock(&s->mutex) == 0);
    while (s->turn != 0) CHECK(pthread_cond_wait(&s->changed, &s->mutex) == 0);
    s->turn = 1;
    CHECK(pthread_cond_signal(&s->changed) == 0 && pthread_mutex_unlock(&s->mutex) == 0);
    if (i % 20 == 0) push_far(s, sizeof *s);
  }
  CHECK(pthread_join(thread, NULL) == 0 && s->sum == 200);
}

static int blocked_pipe[2];
static volatile int cleaned;

static void clean(void* unused) {
  (void)unused;
  cleaned = 1;
}

static void* block_in_read(void* buffer) {
  pthread_cleanup_push(clean, NULL);
  CHECK(read(blocked_pipe[0], buffer, 100) == -2);  // never returns
  pthread_cleanup_pop(0);
  return NULL;
}

// Returns when the thread with this id sleeps in read(): it may also sleep while a page of its buffer is fetched.
static void wait_until_it_reads(pid_t thread) {
  char path[64];
  int call = -1;
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
  for (int i = 0; call != SYS_read; i++) {
    CHECK(i < 100000);
    FILE* file = fopen(path, "r");
    CHECK(file);
    if (fscanf(file, "%d", &call) != 1) call = -1;  // it runs
    fclose(file);
    sched_yield();
  }
}

static pid_t volatile blocked_thread;

static void* block_and_tell(void* buffer) {
  blocked_thread = gettid();
  return block_in_read(buffer);
}

static void cancelled(void) {
  CHECK(pipe(blocked_pipe) == 0);
  for (int i = 0; i < 10; i++) {
    char* buffer = far_buffer(100, 1);
    cleaned = 0, blocked_thread = 0;
    pthread_t thread;
    void* result;
    CHECK(pthread_create(&thread, NULL, block_and_tell, buffer) == 0);
    while (!blocked_thread) sched_yield();
    wait_until_it_reads(blocked_thread);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && cleaned == 1);
    push_far(buffer, 100);
    CHECK(filled(buffer, 100, 1));
    free(buffer);
  }
}

static volatile int signals;
static void on_signal(int number) {
  (void)number;
  signals++;
}

static ssize_t read_result;
static int read_error;

static void* interrupted_read(void* buffer) {
  blocked_thread = gettid();
  read_result = read(blocked_pipe[0], buffer, 100);
  read_error = errno;
  return NULL;
}

static void interrupted(void) {
  CHECK(pipe(blocked_pipe) == 0);
  for (int restart = 0; restart < 2; restart++) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < 10; i++) {
      char* buffer = far_buffer(100, 1);
      signals = 0, blocked_thread = 0;
      pthread_t thread;
      CHECK(pthread_create(&thread, NULL, interrupted_read, buffer) == 0);
      while (!blocked_thread) sched_yield();
      wait_until_it_reads(blocked_thread);
      CHECK(pthread_kill(thread, SIGUSR1) == 0);
      while (!signals) sched_yield();
      if (restart) CHECK(write(blocked_pipe[1], "abc", 3) == 3);
      CHECK(pthread_join(thread, NULL) == 0);
      if (restart) CHECK(read_result == 3 && !memcmp(buffer, "abc", 3));
      else CHECK(read_result == -1 && read_error == EINTR);
      free(buffer);
    }
  }
}

// Closes descriptors that the program did not open, as daemons do. Farside's descriptors must survive.
static void closed_descriptors(void) {
  char* block = far_buffer(16 * MIB, 1);
  CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
  CHECK(filled(block, 16 * MIB, 1));
  fill(block, 16 * MIB, 2);
  push_far(block, 16 * MIB);
  for (int fd = 3; fd < 4096; fd++) close(fd);
  CHECK(filled(block, 16 * MIB, 2));
  closefrom(3);
  push_far(block, 16 * MIB);
  for (int fd = 3; fd < 300; fd++) CHECK(dup2(0, fd) == fd);
  CHECK(filled(block, 16 * MIB, 2));
  for (int fd = 3; fd < 300; fd++) CHECK(close(fd) == 0);
  push_far(block, 16 * MIB);
  CHECK(filled(block, 16 * MIB, 2));
  int first = open("/dev/null", O_RDONLY);
  CHECK(first == 3);  // the lowest free number, as without Farside
  struct rlimit few = {16, 16};
  CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  pthread_t thread;
  futex_word = far_zero(sizeof *futex_word);
  CHECK(pthread_create(&thread, NULL, waker, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(filled(block, 16 * MIB, 2));
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"waiting", waiting},
                                           {"futexes", futexes},
                                           {"locks", locks},
                                           {"cancelled", cancelled},
                                           {"interrupted", interrupted},
                                           {"closed_descriptors", closed_descriptors},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
