// System calls whose arguments are in far memory: buffers of 1 byte to 64 MiB, vectors, structures, strings, path
// names.
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "far.h"

static const size_t kSizes[] = {1, 2, 4095, 4096, 4097, 65536, 1000003, 16 * MIB, 64 * MIB};
#define SIZES (sizeof kSizes / sizeof *kSizes)

static int scratch_file(void) {
  char name[] = "farside-calls-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0);
  return fd;
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

// A structure on the stack that refers to far memory: a filter that sockets accept, and seccomp refuses for its
// content.
static void nested(void) {
  const struct sock_filter steps[] = {{BPF_LD | BPF_B | BPF_ABS, 0, 0, 0}, {BPF_RET | BPF_K, 0, 0, 0xffff}};
  struct sock_filter* filter = far_zero(sizeof steps);
  memcpy(filter, steps, sizeof steps);
  struct sock_fprog program = {2, filter};
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  push_far(filter, sizeof steps);
  CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  push_far(filter, sizeof steps);
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == -1 && errno == EINVAL);
  push_far(filter, sizeof steps);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == -1 && errno == EINVAL);
}

#define FAILS(number, error, ...)               \
  do {                                          \
    errno = 0;                                  \
    CHECK(syscall(number, __VA_ARGS__) == -1L); \
    CHECK(errno == (error));                    \
  } while (0)

// Addresses that the program may not access, in calls whose structures Farside reads itself. A stretch of these is far.
static void bad_addresses(void) {
  char* closed = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(closed != MAP_FAILED);
  char* const bad[] = {(char*)-1L, (char*)8, closed, closed + (1 << 20) - 4};
  char *const no_arguments[] = {"x", NULL}, *const file = "/bin/true";
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *b = bad[i], *const list[] = {"x", b, NULL};
    FAILS(SYS_rt_sigprocmask, EFAULT, SIG_BLOCK, b, NULL, 8);
    FAILS(SYS_rt_sigprocmask, EFAULT, SIG_BLOCK, NULL, b, 8);
    FAILS(SYS_rt_sigaction, EFAULT, SIGUSR1, b, NULL, 8);
    FAILS(SYS_rt_sigaction, EFAULT, SIGUSR1, NULL, b, 8);
    FAILS(SYS_sigaltstack, EFAULT, b, NULL);
    FAILS(SYS_sigaltstack, EFAULT, NULL, b);
    FAILS(SYS_rt_sigsuspend, EFAULT, b, 8);
    FAILS(SYS_ppoll, EFAULT, NULL, 0, NULL, b, 8);
    FAILS(SYS_pselect6, EFAULT, 0, NULL, NULL, NULL, NULL, b);
    FAILS(SYS_execve, EFAULT, b, no_arguments, no_arguments);
    FAILS(SYS_execve, EFAULT, file, b, no_arguments);
    FAILS(SYS_execve, EFAULT, file, list, no_arguments);
    FAILS(SYS_execve, EFAULT, file, no_arguments, list);
    FAILS(SYS_clone3, EFAULT, b, 64);
    CHECK(execve(file, no_arguments, (char**)b) == -1 && errno == EFAULT);
  }
  stack_t stack = {.ss_sp = closed, .ss_size = 65536, .ss_flags = 5};
  FAILS(SYS_sigaltstack, EINVAL, &stack, NULL);
  uint64_t fork_with_half_a_stack[8] = {0, 0, 0, 0, SIGCHLD, (uint64_t)closed, 0, 0};
  FAILS(SYS_clone3, EINVAL, fork_with_half_a_stack, 64);
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
                                           {"machine", machine},
                                           {"nested", nested},
                                           {"bad_addresses", bad_addresses},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
