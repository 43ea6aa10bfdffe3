// System calls of many threads whose buffers are together much larger than near memory: pins THREADS plain|vector.
// Each thread writes and reads a file by calls of 2 MiB. As many again wait in a call for data that comes at the end,
// with buffers of their own. Prints "ok".
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kBytes = 2 << 20, kPieces = 64, kRounds = 2, kMaxThreads = 64, kWaiting = 256 << 10 };
static int vector;
static int pairs[kMaxThreads][2];

static void require(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

static void* transfer(void* unused) {
  (void)unused;
  char *from = malloc(kBytes), *to = malloc(kBytes);
  int fd = open("/tmp", O_RDWR | O_TMPFILE, 0600);
  require(fd >= 0, "open");
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < kBytes; i += 512) memcpy(from + i, &(int){i ^ round}, sizeof(int));
    require(pwrite(fd, from, kBytes, 0) == kBytes, "pwrite");
    if (vector) {
      struct iovec pieces[kPieces];
      for (int i = 0; i < kPieces; i++) pieces[i] = (struct iovec){to + i * (kBytes / kPieces), kBytes / kPieces};
      require(preadv(fd, pieces, kPieces, 0) == kBytes, "preadv");
    } else {
      require(pread(fd, to, kBytes, 0) == kBytes, "pread");
    }
    require(memcmp(from, to, kBytes) == 0, "content");
  }
  free(from);
  free(to);
  close(fd);
  return NULL;
}

static void* wait_for_data(void* pair) {
  char* to = malloc(kWaiting);
  memset(to, 1, kWaiting);
  require(read(((int*)pair)[0], to, kWaiting) == 5 && memcmp(to, "hello", 5) == 0, "read");
  free(to);
  return NULL;
}

int main(int argc, char** argv) {
  int threads = argc == 3 ? atoi(argv[1]) : 0;
  if (threads < 1 || threads > kMaxThreads) return 2;
  vector = strcmp(argv[2], "vector") == 0;
  pthread_t waiting[kMaxThreads], working[kMaxThreads];
  for (int i = 0; i < threads; i++) {
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) == 0, "socketpair");
    require(pthread_create(&waiting[i], NULL, wait_for_data, pairs[i]) == 0, "pthread_create");
  }
  for (int i = 0; i < threads; i++) require(pthread_create(&working[i], NULL, transfer, NULL) == 0, "pthread_create");
  for (int i = 0; i < threads; i++) pthread_join(working[i], NULL);
  for (int i = 0; i < threads; i++) require(write(pairs[i][1], "hello", 5) == 5, "write");
  for (int i = 0; i < threads; i++) pthread_join(waiting[i], NULL);
  puts("ok");
  return 0;
}
