// Calls that the kernel does as a whole, with more pieces and bytes than are pinned: messages keep their boundaries,
// records of several writers do not mix, limits and faults end a transfer where they do natively.
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "far.h"

#define PIECES 1024
#define SPACING 5000UL

// Pieces of odd sizes, 0 to 1,230 bytes, in a far block.
static struct iovec* odd_pieces(char* block, int count) {
  struct iovec* list = malloc((size_t)count * sizeof *list);
  for (int i = 0; i < count; i++) list[i] = (struct iovec){block + (size_t)i * SPACING, (size_t)((i * 41 + 7) % 1231)};
  return list;
}

static size_t total(const struct iovec* list, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += list[i].iov_len;
  return bytes;
}

static uint64_t digest(const void* start, size_t bytes, uint64_t sum) {
  for (size_t i = 0; i < bytes; i++) sum = sum * 1099511628211u + ((const unsigned char*)start)[i];
  return sum;
}

static uint64_t digest_of(const struct iovec* list, int count, size_t bytes) {
  uint64_t sum = 0;
  for (int i = 0; i < count; i++) {
    size_t part = list[i].iov_len < bytes ? list[i].iov_len : bytes;
    sum = digest(list[i].iov_base, part, sum);
    bytes -= part;
  }
  return sum;
}

static int socket_pair(int type, int ends[2]) {
  int room = 16 << 20;
  CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
  for (int i = 0; i < 2; i++) CHECK(setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) == 0);
  return ends[0];
}

static int scratch_file(int flags) {
  char name[] = "farside-whole-XXXXXX";
  int fd = mkstemp(name);
  CHECK(fd >= 0);
  int again = open(name, O_RDWR | flags);
  CHECK(again >= 0 && unlink(name) == 0 && close(fd) == 0);
  return again;
}

// Every number of pieces through datagrams, packets, streams, pipes and files, by all vector calls.
static void many_pieces(void) {
  char *from = far_buffer(PIECES * SPACING, 1), *to = far_buffer(PIECES * SPACING, 2);
  static const int counts[] = {32, 33, PIECES};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    int n = counts[c], ends[2];
    struct iovec *out = odd_pieces(from, n), *in = odd_pieces(to, n);
    ssize_t bytes = (ssize_t)total(out, n);
    uint64_t expected = digest_of(out, n, (size_t)bytes);
    for (int kind = 0; kind < 3; kind++) {
      socket_pair(kind == 0 ? SOCK_DGRAM : kind == 1 ? SOCK_SEQPACKET : SOCK_STREAM, ends);
      for (int call = 0; call < 2; call++) {
        memset(to, 0, PIECES * SPACING);
        struct msghdr sent = {.msg_iov = out, .msg_iovlen = (size_t)n}, got = {.msg_iov = in, .msg_iovlen = (size_t)n};
        CHECK((call ? sendmsg(ends[0], &sent, 0) : writev(ends[0], out, n)) == bytes);
        CHECK((call ? recvmsg(ends[1], &got, MSG_DONTWAIT) : readv(ends[1], in, n)) == bytes);
        CHECK(digest_of(in, n, (size_t)bytes) == expected && got.msg_flags == 0);
        char one;
        CHECK(recv(ends[1], &one, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);  // one message, no more
      }
      close(ends[0]), close(ends[1]);
    }
    int fd = scratch_file(0);
    push_far(from, PIECES * SPACING);
    CHECK(pwritev(fd, out, n, 77) == bytes && pwritev2(fd, out, n, 77, 0) == bytes);
    memset(to, 0, PIECES * SPACING);
    push_far(to, PIECES * SPACING);
    CHECK(preadv(fd, in, n, 77) == bytes && digest_of(in, n, (size_t)bytes) == expected);
    CHECK(preadv2(fd, in, n, 77, 0) == bytes && digest_of(in, n, (size_t)bytes) == expected);
    close(fd), free(out), free(in);
  }
}

static void show(const char* what, ssize_t r) {
  printf("%s: %zd%s%s\n", what, r, r < 0 ? " " : "", r < 0 ? strerror(errno) : "");
}

// Datagrams of 200 KiB, cut off by short buffers, looked at before they are taken.
static void large_datagrams(void) {
  enum { BYTES = 200 << 10 };
  static const int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
  for (int t = 0; t < 2; t++) {
    int ends[2];
    socket_pair(types[t], ends);
    char *from = far_buffer(3 * MIB, 1), *to = far_buffer(3 * MIB, 2);
    struct iovec out[40], in[3] = {{to, 50000}, {to + MIB, 100000}, {to + 2 * MIB, 300000}};
    for (int i = 0; i < 40; i++) out[i] = (struct iovec){from + i * 60000, BYTES / 40};
    show("send", send(ends[0], from, BYTES, 0));
    show("writev", writev(ends[0], out, 40));
    show("write", write(ends[0], from, 3 * MIB));
    show("peek", recv(ends[1], to, 3 * MIB, MSG_PEEK));
    show("peek, cut", recv(ends[1], to, 100000, MSG_PEEK | MSG_TRUNC));
    push_far(to, 3 * MIB);
    struct msghdr got = {.msg_iov = in, .msg_iovlen = 3};
    show("recvmsg", recvmsg(ends[1], &got, 0));
    printf("flags %x, content %lx\n", got.msg_flags, digest_of(in, 3, BYTES));
    got = (struct msghdr){.msg_iov = in, .msg_iovlen = 2};
    push_far(to, 3 * MIB);
    show("recvmsg, cut", recvmsg(ends[1], &got, MSG_TRUNC));
    printf("flags %x, content %lx\n", got.msg_flags, digest_of(in, 2, 150000));
    show("recv", recv(ends[1], to, 3 * MIB, 0));
    printf("content %lx\n", digest(to, 3 * MIB, 0));
    show("nothing", recv(ends[1], to, 3 * MIB, MSG_DONTWAIT));
    close(ends[0]), close(ends[1]), free(from), free(to);
  }
}

static int blocked[2];

static void* send_in_turn(void* unused) {
  (void)unused;
  static char data[300000];
  for (int i = 0; i < 10; i++) {
    usleep(20000);
    memset(data, 'a' + i, sizeof data);
    CHECK(send(blocked[0], data, (size_t)(1000 + 20000 * i), 0) > 0);
  }
  return NULL;
}

// recvmmsg and sendmmsg: all, some, one; with a limit of time.
static void lists_of_messages(void) {
  enum { COUNT = 5, ROOM = 400000 };
  struct mmsghdr* m = calloc(COUNT, sizeof *m);
  struct iovec* v = calloc(2 * COUNT, sizeof *v);
  char* to = far_buffer(2UL * COUNT * ROOM, 1);
  for (int i = 0; i < COUNT; i++) {
    v[2 * i] = (struct iovec){to + 2 * i * ROOM, 999};
    v[2 * i + 1] = (struct iovec){to + (2 * i + 1) * ROOM, ROOM};
    m[i].msg_hdr = (struct msghdr){.msg_iov = v + 2 * i, .msg_iovlen = 2};
  }
  socket_pair(SOCK_DGRAM, blocked);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, send_in_turn, NULL) == 0);
  push_far(to, 2UL * COUNT * ROOM);
  show("one or more", recvmmsg(blocked[1], m, COUNT, MSG_WAITFORONE, NULL) > 0);
  CHECK(pthread_join(thread, NULL) == 0);
  int left = 0;
  for (int n; (n = recvmmsg(blocked[1], m, COUNT, MSG_DONTWAIT, NULL)) > 0;) left += n;
  printf("rest %s\n", left >= 5 && left <= 9 ? "arrived" : "lost");
  CHECK(pthread_create(&thread, NULL, send_in_turn, NULL) == 0);
  push_far(to, 2UL * COUNT * ROOM);
  show("all", recvmmsg(blocked[1], m, COUNT, 0, NULL));
  for (int i = 0; i < COUNT; i++) printf("%u %lx\n", m[i].msg_len, digest_of(v + 2 * i, 2, m[i].msg_len));
  struct timespec* limit = malloc(sizeof *limit);
  *limit = (struct timespec){100, 5};
  push_far(m, COUNT * sizeof *m);
  push_far(limit, sizeof *limit);
  show("all in time", recvmmsg(blocked[1], m, COUNT, 0, limit));
  printf("left %d s\n", limit->tv_sec >= 90 && limit->tv_sec < 100);
  for (int i = 0; i < COUNT; i++) printf("%u %lx\n", m[i].msg_len, digest_of(v + 2 * i, 2, m[i].msg_len));
  CHECK(pthread_join(thread, NULL) == 0);
  *limit = (struct timespec){0, 1};
  CHECK(send(blocked[0], "x", 1, 0) == 1 && send(blocked[0], "y", 1, 0) == 1);
  show("no time", recvmmsg(blocked[1], m, COUNT, 0, limit));  // the limit is looked at after each message
  *limit = (struct timespec){0, -1};
  show("bad time", recvmmsg(blocked[1], m, COUNT, 0, limit));
  show("list too long", sendmmsg(blocked[0], m, COUNT, MSG_DONTWAIT));
  for (int i = 0; i < COUNT; i++) printf("sent %u\n", m[i].msg_len);
  m[2].msg_hdr.msg_iovlen = IOV_MAX + 1;
  show("third refused", sendmmsg(blocked[0], m, COUNT, MSG_DONTWAIT));
  m[0].msg_hdr.msg_iovlen = IOV_MAX + 1;
  show("first refused", sendmmsg(blocked[0], m, COUNT, MSG_DONTWAIT));
}

// Writes to a pipe of at most PIPE_BUF bytes, in 20 pieces, of two writers: none is divided.
static void pipe_records(void) {
  enum { RECORDS = 3000, BYTES = 4000 };
  int ends[2];
  CHECK(pipe(ends) == 0);
  for (int writer = 0; writer < 2; writer++) {
    if (fork() != 0) continue;
    char* block = far_buffer(20 * SPACING, 1);
    struct iovec list[20];
    for (int i = 0; i < 20; i++) list[i] = (struct iovec){block + (size_t)i * SPACING, BYTES / 20};
    for (int i = 0; i < 20; i++) memset(list[i].iov_base, 'A' + writer, BYTES / 20);
    for (int r = 0; r < RECORDS; r++) CHECK(writev(ends[1], list, 20) == BYTES);
    _exit(0);
  }
  close(ends[1]);
  char record[BYTES];
  int records = 0, mixed = 0;
  for (size_t have = 0;;) {
    ssize_t n = read(ends[0], record + have, sizeof record - have);
    if (n <= 0) break;
    if ((have += (size_t)n) < sizeof record) continue;
    have = 0, records++;
    for (size_t i = 1; i < sizeof record; i++) mixed += record[i] != record[0];
  }
  printf("%d records, %d bytes mixed\n", records, mixed);
}

// Records of 100 KiB to 3 MiB that processes append to a file, in one piece and in 300.
static void appended_records(void) {
  static const size_t sizes[] = {100 << 10, 1500000};
  for (int s = 0; s < 2; s++) {
    char name[] = "farside-append-XXXXXX";
    size_t bytes = sizes[s];
    CHECK(close(mkstemp(name)) == 0);
    for (int writer = 0; writer < 2; writer++) {
      if (fork() != 0) continue;
      int fd = open(name, O_WRONLY | O_APPEND);
      char* block = far_buffer(bytes, 1);
      memset(block, 'A' + writer, bytes);
      struct iovec list[300];
      for (size_t i = 0; i < 300; i++) list[i] = (struct iovec){block + i * (bytes / 300), bytes / 300};
      list[299].iov_len += bytes % 300;
      for (int r = 0; r < 4; r++) {
        push_far(block, bytes);
        CHECK((r & 1 ? writev(fd, list, 300) : write(fd, block, bytes)) == (ssize_t)bytes);
      }
      _exit(0);
    }
    for (int status, i = 0; i < 2; i++) CHECK(wait(&status) > 0 && status == 0);
    int fd = open(name, O_RDONLY);
    char* record = malloc(bytes);
    int records = 0, mixed = 0;
    for (; read(fd, record, bytes) == (ssize_t)bytes; records++) {
      for (size_t i = 1; i < bytes; i++) mixed += record[i] != record[0];
    }
    printf("%d records of %zu, %d bytes mixed\n", records, bytes, mixed);
    CHECK(unlink(name) == 0 && close(fd) == 0);
    free(record);
  }
}

static volatile sig_atomic_t over_limit;
static void on_over_limit(int number) {
  (void)number;
  over_limit++;
}

// A write that crosses the limit of a file's size is cut; one that begins there is refused, with a signal.
static void file_limit(void) {
  enum { LIMIT = 5000000 };
  CHECK(signal(SIGXFSZ, on_over_limit) != SIG_ERR);
  CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){LIMIT, RLIM_INFINITY}) == 0);
  char* block = far_buffer(6 * MIB, 1);
  for (int kind = 0; kind < 4; kind++) {
    int fd = scratch_file(kind == 3 ? O_APPEND : 0);
    struct iovec list[60];
    for (size_t i = 0; i < 60; i++) list[i] = (struct iovec){block + i * 100000, 100000};
    push_far(block, 6 * MIB);
    over_limit = 0;
    show("first", kind == 1   ? writev(fd, list, 60)
                  : kind == 2 ? pwritev(fd, list, 60, 4000)
                              : write(fd, block, 6 * MIB));
    printf("signals %d\n", over_limit);
    show("second", kind == 2 ? pwrite(fd, block, 3 * MIB, LIMIT) : write(fd, block, 3 * MIB));
    printf("signals %d, size %ld\n", over_limit, (long)lseek(fd, 0, SEEK_END));
    close(fd);
  }
}

// Memory of which the last pages are missing, or may not be written.
static char* broken_memory(size_t good, int protection) {
  char* block = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(block != MAP_FAILED);
  fill(block, 4 * MIB, 3);
  push_far(block, 4 * MIB);
  if (protection < 0) CHECK(munmap(block + good, PAGE) == 0);
  else CHECK(mprotect(block + good, PAGE, protection) == 0);
  return block;
}

static void faults(void) {
  static const size_t goods[] = {PAGE, 40 * PAGE, 3 * MIB};
  for (int g = 0; g < 3; g++) {
    for (int protection = -1; protection <= PROT_NONE; protection++) {
      size_t good = goods[g], bytes = good + PAGE;
      char *block = broken_memory(good, protection), *other = far_buffer(4 * MIB, 1);
      int ends[2], fd = scratch_file(0);
      CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
      struct iovec list[3] = {{other, 5000}, {block, bytes}, {other, 100}};
      printf("%zu, %d\n", good, protection);
      show("write", write(fd, block, bytes));
      show("writev", writev(fd, list, 3));
      show("pipe", write(ends[1], block + good - 1000, 2000));
      show("offset", (ssize_t)lseek(fd, 0, SEEK_CUR));
      CHECK(pwrite(fd, other, 4 * MIB, 0) == (ssize_t)(4 * MIB));
      show("read", pread(fd, block, bytes, 0));
      show("readv", preadv(fd, list, 3, 0));
      socket_pair(SOCK_DGRAM, blocked);
      show("send", send(blocked[0], block, bytes, 0));
      show("sendmsg", sendmsg(blocked[0], &(struct msghdr){.msg_iov = list, .msg_iovlen = 3}, 0));
      show("nothing sent", recv(blocked[1], other, 10, MSG_DONTWAIT));
      close(fd), close(ends[0]), close(ends[1]), close(blocked[0]), close(blocked[1]);
      free(other);
      munmap(block, 4 * MIB);
    }
  }
}

static void* fill_stream(void* unused) {
  (void)unused;
  static char data[100000];
  for (int i = 0; i < 50; i++) CHECK(write(blocked[0], data, sizeof data) == sizeof data);
  return NULL;
}

// MSG_WAITALL of a stream; MSG_TRUNC, by which TCP drops bytes without a copy.
static void streams(void) {
  pthread_t thread;
  char* to = far_buffer(4 * MIB, 1);
  struct iovec list[100];
  for (size_t i = 0; i < 100; i++) list[i] = (struct iovec){to + i * 40000, 25000};
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, blocked) == 0 && pthread_create(&thread, NULL, fill_stream, NULL) == 0);
  show("recv", recv(blocked[1], to, 2500000, MSG_WAITALL));
  show("recvmsg", recvmsg(blocked[1], &(struct msghdr){.msg_iov = list, .msg_iovlen = 100}, MSG_WAITALL));
  CHECK(pthread_join(thread, NULL) == 0);
}

// Beyond 16 MiB: messages and records are refused or sent whole, never divided.
static void beyond(void) {
  enum { BYTES = 17 << 20 };
  char* block = far_buffer(BYTES, 1);
  int fd = scratch_file(O_APPEND);
  ssize_t n = write(fd, block, BYTES);
  CHECK(n == BYTES || (n == -1 && errno == ENOMEM && under_farside()));
  CHECK(lseek(fd, 0, SEEK_END) == (n < 0 ? 0 : n));
  socket_pair(SOCK_DGRAM, blocked);
  CHECK(send(blocked[0], block, BYTES, MSG_DONTWAIT) == -1);
  struct iovec one = {block, BYTES};
  CHECK(sendmsg(blocked[0], &(struct msghdr){.msg_iov = &one, .msg_iovlen = 1}, MSG_DONTWAIT) == -1);
  CHECK(recv(blocked[1], block, BYTES, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  int plain = scratch_file(0);
  CHECK(write(plain, block, BYTES) == BYTES && lseek(plain, 0, SEEK_SET) == 0);
  memset(block, 0, BYTES);
  CHECK(read(plain, block, BYTES) == BYTES && filled(block, BYTES, 1));
}

// Pages of far memory in a pipe, and memory of this process as that of another.
static void pipes_and_processes(void) {
  int ends[2];
  char *from = far_buffer(MIB, 1), *to = far_buffer(MIB, 2);
  CHECK(pipe(ends) == 0);
  struct iovec out[2] = {{from + 100, 9000}, {from + 50000, 4096}}, in = {to + 10, 20000};
  push_far(from, MIB);
  show("vmsplice", vmsplice(ends[1], out, 2, SPLICE_F_NONBLOCK));
  memset(from, 0, PAGE);
  push_far(to, MIB);
  show("back", vmsplice(ends[0], &in, 1, 0));
  struct iovec *local = odd_pieces(to, 200), *remote = odd_pieces(from, 150);
  fill(from, MIB, 5);
  push_far(from, MIB);
  push_far(to, MIB);
  show("readv", process_vm_readv(getpid(), local, 200, remote, 150, 0));
  printf("%lx\n", digest_of(local, 200, total(remote, 150)));
  show("writev", process_vm_writev(gettid(), local, 200, remote, 150, 0));
  printf("%lx\n", digest_of(remote, 150, MIB));
  show("too many", process_vm_readv(getpid(), local, IOV_MAX + 1, remote, 150, 0));
  show("flags", process_vm_readv(getpid(), local, 2, remote, 2, 1));
}

// /proc/self/mem, /proc/PID/task/TID/mem and a link to it, with and without a position of the file.
static void own_memory(void) {
  char link[] = "farside-link-XXXXXX", path[64];
  CHECK(close(mkstemp(link)) == 0 && unlink(link) == 0 && symlink("/proc/self/mem", link) == 0);
  snprintf(path, sizeof path, "/proc/%d/task/%d/mem", getpid(), getpid());
  const char* paths[] = {"/proc/self/mem", path, "/proc/thread-self/mem", link};
  for (int p = 0; p < 4; p++) {
    int fd = dup(open(paths[p], O_RDWR));
    CHECK(fd >= 0);
    char *block = far_buffer(3 * MIB, 1), *to = far_buffer(3 * MIB, 2);
    push_far(block, 3 * MIB);
    show("seek", lseek(fd, (off_t)(block + 5), SEEK_SET) == (off_t)(block + 5));
    show("read", read(fd, to, 2 * MIB));
    show("again", read(fd, to + 2 * MIB, 100));
    printf("%lx\n", digest(to, 2 * MIB + 100, 0));
    fill(to, 3 * MIB, 7);
    push_far(block, 3 * MIB);
    struct iovec list[2] = {{to, 5000}, {to + MIB, 90000}};
    show("pwritev", pwritev(fd, list, 2, (off_t)block + 4000));
    show("write", write(fd, to, 7));
    printf("%lx\n", digest(block, 3 * MIB, 0));
    if (p > 0) continue;
    char* hole = broken_memory(MIB, -1);
    show("hole", pread(fd, to, 2 * MIB, (off_t)hole));
    show("in the hole", pread(fd, to, 10, (off_t)(hole + MIB)));
    show("near", pread(fd, to, 10, (off_t)link));
  }
  CHECK(unlink(link) == 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"many_pieces", many_pieces},
                                           {"large_datagrams", large_datagrams},
                                           {"lists_of_messages", lists_of_messages},
                                           {"pipe_records", pipe_records},
                                           {"appended_records", appended_records},
                                           {"file_limit", file_limit},
                                           {"faults", faults},
                                           {"streams", streams},
                                           {"beyond", beyond},
                                           {"pipes_and_processes", pipes_and_processes},
                                           {"own_memory", own_memory},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
