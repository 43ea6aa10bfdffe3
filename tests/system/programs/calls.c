// System calls whose arguments are in far memory: buffers of 1 byte to 64 MiB, vectors, structures, strings, path
// names.
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#include "far.h"

static const size_t kSizes[] = {1, 2, 4095, 4096, 4097, 65536, 1000003, 16 * MIB, 64 * MIB};
#define SIZES (sizeof kSizes / sizeof *kSizes)

static int scratch_file(void) {
  char name[] = "farside-calls-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  return fd;
}

// A zeroed structure that is far.
static void* far_zero(size_t bytes) {
  void* p = far_buffer(bytes, 0);
  memset(p, 0, bytes);
  push_far(p, bytes);
  return p;
}

static void write_all(int fd, const char* from, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = write(fd, from + done, bytes - done);
    CHECK(n > 0);
    done += (size_t)n;
  }
}

static void read_all(int fd, char* to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = read(fd, to + done, bytes - done);
    CHECK(n > 0);
    done += (size_t)n;
  }
}

static void read_write(void) {
  int fd = scratch_file();
  for (uint32_t i = 0; i < SIZES; i++) {
    char* from = far_buffer(kSizes[i], i);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    write_all(fd, from, kSizes[i]);
    char* to = far_buffer(kSizes[i] + 1, 99);
    char after = to[kSizes[i]];
    push_far(to, kSizes[i]);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    read_all(fd, to, kSizes[i]);
    CHECK(filled(to, kSizes[i], i) && to[kSizes[i]] == after);
    push_far(to, kSizes[i]);
    CHECK(filled(to, kSizes[i], i));
    free(from), free(to);
  }
}

static void positioned(void) {
  int fd = scratch_file();
  char* from = far_buffer(3 * MIB, 1);
  CHECK(pwrite(fd, from, 3 * MIB, 12345) == (ssize_t)(3 * MIB));
  char* to = far_buffer(3 * MIB, 2);
  CHECK(pread(fd, to, 3 * MIB, 12345) == (ssize_t)(3 * MIB) && filled(to, 3 * MIB, 1));
  struct iovec* segments = far_zero(3 * sizeof *segments);
  for (int i = 0; i < 3; i++) segments[i] = (struct iovec){to + i * MIB, MIB};
  push_far(to, 3 * MIB);
  push_far(segments, 3 * sizeof *segments);
  CHECK(pwritev(fd, segments, 3, 777) == (ssize_t)(3 * MIB));
  memset(to, 0, 3 * MIB);
  push_far(to, 3 * MIB);
  push_far(segments, 3 * sizeof *segments);
  CHECK(preadv(fd, segments, 3, 777) == (ssize_t)(3 * MIB) && filled(to, 3 * MIB, 1));
  push_far(to, 3 * MIB);
  CHECK(preadv2(fd, segments, 3, 777, 0) == (ssize_t)(3 * MIB) && filled(to, 3 * MIB, 1));
}

static void vectors(void) {
  enum { kSegments = 1024, kBytes = 5000 };
  int fd = scratch_file();
  struct iovec* segments = malloc(kSegments * sizeof *segments);
  for (uint32_t i = 0; i < kSegments; i++) {
    segments[i].iov_base = malloc(kBytes);
    segments[i].iov_len = kBytes;
    fill(segments[i].iov_base, kBytes, i);
  }
  push_far(segments[kSegments / 2].iov_base, kBytes);
  push_far(segments, kSegments * sizeof *segments);
  CHECK(writev(fd, segments, kSegments) == kSegments * kBytes);
  for (uint32_t i = 0; i < kSegments; i++) memset(segments[i].iov_base, 0, kBytes);
  push_far(segments, kSegments * sizeof *segments);
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, segments, kSegments) == kSegments * kBytes);
  for (uint32_t i = 0; i < kSegments; i++) CHECK(filled(segments[i].iov_base, kBytes, i));
}

// System calls without libc's wrappers.
static void raw(void) {
  int* ends = far_zero(2 * sizeof *ends);
  CHECK(syscall(SYS_pipe2, ends, O_CLOEXEC) == 0);
  char* from = far_buffer(60000, 1);
  char* to = far_buffer(60000, 2);
  CHECK(syscall(SYS_write, ends[1], from, 60000L) == 60000);
  CHECK(syscall(SYS_read, ends[0], to, 60000L) == 60000 && filled(to, 60000, 1));
  struct timespec* now = far_zero(sizeof *now);
  CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, now) == 0 && now->tv_sec > 0);
  errno = 0;
  CHECK(syscall(SYS_read, ends[0], (void*)8, 0L) == 0);
  CHECK(write(ends[1], "x", 1) == 1);
  CHECK(syscall(SYS_read, ends[0], (void*)8, 1L) == -1 && errno == EFAULT);
}

struct transfer {
  int fd;
  size_t bytes;
  uint32_t seed;
};

static void* sender(void* argument) {
  struct transfer* t = argument;
  char* data = far_buffer(t->bytes, t->seed);
  struct iovec* part = far_zero(sizeof *part);
  struct msghdr* message = far_zero(sizeof *message);
  for (size_t done = 0; done < t->bytes;) {
    *part = (struct iovec){data + done, t->bytes - done};
    *message = (struct msghdr){.msg_iov = part, .msg_iovlen = 1};
    if (done == 0) push_far(message, sizeof *message);
    ssize_t n = sendmsg(t->fd, message, MSG_NOSIGNAL);
    CHECK(n > 0);
    done += (size_t)n;
  }
  free(part), free(message), free(data);
  return NULL;
}

static void messages(void) {
  static const size_t sizes[] = {1, 4097, 300000, 16 * MIB};
  for (uint32_t i = 0; i < 4; i++) {
    int* pair = far_zero(2 * sizeof *pair);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct transfer t = {pair[0], sizes[i], i};
    char* to = far_buffer(sizes[i], 99);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sender, &t) == 0);
    for (size_t done = 0; done < sizes[i];) {
      struct iovec part = {to + done, sizes[i] - done};
      struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
      ssize_t n = recvmsg(pair[1], &message, 0);
      CHECK(n > 0);
      done += (size_t)n;
    }
    CHECK(pthread_join(thread, NULL) == 0 && filled(to, sizes[i], i));
    close(pair[0]), close(pair[1]);
    free(to);
  }
}

// A descriptor is sent in a control buffer that is far, and received in one.
static void control_messages(void) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  size_t room = CMSG_SPACE(sizeof(int));
  for (int i = 0; i < 10; i++) {
    char* control = far_zero(room);
    char* byte = far_buffer(1, 1);
    struct iovec part = {byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    struct cmsghdr* head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &(int){pair[0]}, sizeof(int));
    push_far(control, room);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    memset(control, 0, room);
    push_far(control, room);
    CHECK(recvmsg(pair[1], &message, 0) == 1);
    head = CMSG_FIRSTHDR(&message);
    int fd;
    CHECK(head && head->cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    CHECK(fcntl(fd, F_GETFD) >= 0 && close(fd) == 0);
    free(control), free(byte);
  }
}

static void network(void) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in* here = far_zero(sizeof *here);
  here->sin_family = AF_INET;
  here->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  push_far(here, sizeof *here);
  CHECK(bind(listener, (struct sockaddr*)here, sizeof *here) == 0 && listen(listener, 1) == 0);
  socklen_t* length = far_zero(sizeof *length);
  *length = sizeof *here;
  push_far(length, sizeof *length);
  CHECK(getsockname(listener, (struct sockaddr*)here, length) == 0 && here->sin_port && *length == sizeof *here);
  int client = socket(AF_INET, SOCK_STREAM, 0);
  push_far(here, sizeof *here);
  CHECK(connect(client, (struct sockaddr*)here, sizeof *here) == 0);
  struct sockaddr_in* peer = far_zero(sizeof *peer);
  push_far(length, sizeof *length);
  int server = accept4(listener, (struct sockaddr*)peer, length, SOCK_CLOEXEC);
  CHECK(server >= 0 && peer->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  int* value = far_zero(sizeof *value);
  *value = 1;
  push_far(value, sizeof *value);
  CHECK(setsockopt(client, IPPROTO_TCP, 1 /* TCP_NODELAY */, value, sizeof *value) == 0);
  *value = 0;
  *length = sizeof *value;
  push_far(value, sizeof *value);
  CHECK(getsockopt(client, IPPROTO_TCP, 1, value, length) == 0 && *value != 0);
  struct transfer t = {client, 5 * MIB, 5};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, sender, &t) == 0);
  char* to = far_buffer(5 * MIB, 6);
  for (size_t done = 0; done < 5 * MIB;) {
    ssize_t n = recv(server, to + done, 5 * MIB - done, 0);
    CHECK(n > 0);
    done += (size_t)n;
  }
  CHECK(pthread_join(thread, NULL) == 0 && filled(to, 5 * MIB, 5));
}

static void files(void) {
  CHECK(mkdir(far_string("farside-calls-folder"), 0700) == 0);
  int fd = open(far_string("farside-calls-folder/one"), O_CREAT | O_RDWR, 0600);
  CHECK(fd >= 0 && write(fd, far_string("hello"), 5) == 5);
  struct stat* status = far_zero(sizeof *status);
  CHECK(fstat(fd, status) == 0 && status->st_size == 5);
  push_far(status, sizeof *status);
  CHECK(stat(far_string("farside-calls-folder/one"), status) == 0 && S_ISREG(status->st_mode));
  struct statx* more = far_zero(sizeof *more);
  CHECK(statx(AT_FDCWD, far_string("farside-calls-folder/one"), 0, STATX_SIZE, more) == 0 && more->stx_size == 5);
  struct statfs* system = far_zero(sizeof *system);
  CHECK(fstatfs(fd, system) == 0 && system->f_bsize > 0);
  CHECK(symlink(far_string("one"), far_string("farside-calls-folder/two")) == 0);
  char* text = far_zero(PAGE);
  CHECK(readlink(far_string("farside-calls-folder/two"), text, PAGE) == 3 && !memcmp(text, "one", 3));
  CHECK(rename(far_string("farside-calls-folder/one"), far_string("farside-calls-folder/three")) == 0);
  CHECK(access(far_string("farside-calls-folder/one"), F_OK) == -1 && errno == ENOENT);
  for (int i = 0; i < 300; i++) {
    char name[100];
    snprintf(name, sizeof name, "farside-calls-folder/a-file-with-a-longer-name-%03d", i);
    int other = open(name, O_CREAT | O_WRONLY, 0600);
    CHECK(other >= 0 && close(other) == 0);
  }
  int folder = open(far_string("farside-calls-folder"), O_RDONLY | O_DIRECTORY);
  char* entries = far_zero(MIB);
  size_t names = 0;
  for (long n; (n = syscall(SYS_getdents64, folder, entries, MIB)) > 0; push_far(entries, MIB)) {
    for (long at = 0; at < n; at += ((struct dirent64*)(entries + at))->d_reclen) names++;
  }
  CHECK(names == 304);
  DIR* stream = opendir("farside-calls-folder");
  CHECK(stream);
  names = 0;
  for (struct dirent* entry; (entry = readdir(stream)); names++) {
    if (entry->d_name[0] != '.') CHECK(unlinkat(dirfd(stream), entry->d_name, 0) == 0);
  }
  CHECK(names == 304 && closedir(stream) == 0 && rmdir("farside-calls-folder") == 0);
  CHECK(getcwd(text, PAGE) && text[0] == '/');
  CHECK(open(far_string("no/such/file"), O_RDONLY) == -1 && errno == ENOENT);
  struct flock* lock = far_zero(sizeof *lock);
  lock->l_type = F_WRLCK;
  push_far(lock, sizeof *lock);
  CHECK(fcntl(fd, F_SETLK, lock) == 0);
  off_t* offset = far_zero(sizeof *offset);
  int copy = scratch_file();
  CHECK(sendfile(copy, fd, offset, 5) == 5 && *offset == 5);
}

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

static void machine(void) {
  struct utsname* name = far_zero(sizeof *name);
  CHECK(uname(name) == 0 && !strcmp(name->sysname, "Linux"));
  struct sysinfo* info = far_zero(sizeof *info);
  CHECK(sysinfo(info) == 0 && info->totalram > 0);
  struct rusage* usage = far_zero(sizeof *usage);
  CHECK(getrusage(RUSAGE_SELF, usage) == 0);
  struct rlimit* limit = far_zero(sizeof *limit);
  CHECK(getrlimit(RLIMIT_NOFILE, limit) == 0 && limit->rlim_cur > 0);
  push_far(limit, sizeof *limit);
  CHECK(setrlimit(RLIMIT_NOFILE, limit) == 0);
  cpu_set_t* cpus = far_zero(sizeof *cpus);
  CHECK(sched_getaffinity(0, sizeof *cpus, cpus) == 0 && CPU_COUNT(cpus) > 0);
  push_far(cpus, sizeof *cpus);
  CHECK(sched_setaffinity(0, sizeof *cpus, cpus) == 0);
  char* noise = far_zero(10000);
  CHECK(getrandom(noise, 10000, 0) == 10000);
  struct timespec* pause = far_zero(sizeof *pause);
  pause->tv_nsec = 1000;
  push_far(pause, sizeof *pause);
  CHECK(nanosleep(pause, NULL) == 0 && clock_nanosleep(CLOCK_MONOTONIC, 0, pause, NULL) == 0);
  int fds[2];
  CHECK(pipe(fds) == 0 && write(fds[1], "abc", 3) == 3);
  int* available = far_zero(sizeof *available);
  CHECK(ioctl(fds[0], FIONREAD, available) == 0 && *available == 3);
  gid_t* groups = far_zero(1000 * sizeof *groups);
  CHECK(getgroups(1000, groups) >= 0);
  struct iovec local = {noise, 10000}, remote = {far_buffer(10000, 3), 10000};
  CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 10000 && filled(noise, 10000, 3));
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

// Returns when the thread with this id sleeps in the kernel.
static void wait_until_asleep(pid_t thread) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  for (int i = 0; state != 'S'; i++) {
    CHECK(i < 100000);
    FILE* file = fopen(path, "r");
    CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
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
    wait_until_asleep(blocked_thread);
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
      wait_until_asleep(blocked_thread);
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
  static const struct test_case cases[] = {{"read_write", read_write},
                                           {"positioned", positioned},
                                           {"vectors", vectors},
                                           {"raw", raw},
                                           {"messages", messages},
                                           {"control_messages", control_messages},
                                           {"network", network},
                                           {"files", files},
                                           {"waiting", waiting},
                                           {"machine", machine},
                                           {"futexes", futexes},
                                           {"locks", locks},
                                           {"cancelled", cancelled},
                                           {"interrupted", interrupted},
                                           {"closed_descriptors", closed_descriptors},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
