// The number of threads that a program reads of itself in /proc: its own, however the text is read.
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "far.h"

#define ROOM 4096

static int threads_in(const char* text, int is_stat) {
  if (!is_stat) {
    const char* line = strstr(text, "\nThreads:\t");
    CHECK(line && strstr(text, "\nnonvoluntary_ctxt_switches:\t") && text[strlen(text) - 1] == '\n');
    return atoi(line + 10);
  }
  const char* word = strrchr(text, ')');
  int words = 2, number = 0;
  for (; *word; word++) {
    if (*word == ' ' && ++words == 20) number = atoi(word + 1);
  }
  CHECK(words == 52 && word[-1] == '\n');
  return number;
}

typedef void (*reader)(int fd, char* text);

static void by_read(int fd, char* text) {
  ssize_t bytes = read(fd, text, ROOM - 1);
  CHECK(bytes > 0 && lseek(fd, 0, SEEK_CUR) == bytes && read(fd, text + bytes, 10) == 0);
  text[bytes] = 0;
}

static void by_pieces(int fd, char* text, size_t piece) {
  size_t done = 0;
  ssize_t bytes;
  while ((bytes = read(fd, text + done, piece)) > 0) done += (size_t)bytes;
  CHECK(bytes == 0 && read(fd, text + done, piece) == 0);
  text[done] = 0;
}

static void by_hundreds(int fd, char* text) { by_pieces(fd, text, 100); }
static void by_bytes(int fd, char* text) { by_pieces(fd, text, 1); }

static void at_offsets(int fd, char* text) {
  ssize_t bytes, done = 0;
  for (; (bytes = pread(fd, text + done, 200, done)) > 0;) done += bytes;
  CHECK(bytes == 0 && lseek(fd, 0, SEEK_CUR) == 0);
  text[done] = 0;
}

static void by_vector(int fd, char* text) {
  char first[3];
  struct iovec pieces[] = {{first, 3}, {text + 3, ROOM - 4}};
  ssize_t bytes = readv(fd, pieces, 2);
  CHECK(bytes > 0);
  memcpy(text, first, 3);
  text[bytes] = 0;
}

static void to_far_memory(int fd, char* text) {
  char* far = far_buffer(ROOM, 1);
  by_read(fd, far);
  strcpy(text, far);
  free(far);
}

static void twice(int fd, char* text) {
  by_read(fd, text);
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  by_read(fd, text);
}

static int threads_by(reader read_text, const char* format, int id) {
  char path[100], text[ROOM];
  snprintf(path, sizeof path, format, id);
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  read_text(fd, text);
  CHECK(close(fd) == 0);
  return threads_in(text, !strstr(path, "status"));
}

static void check_all(reader read_text, int wanted) {
  CHECK(threads_by(read_text, "/proc/self/status", 0) == wanted);
  CHECK(threads_by(read_text, "/proc/self/stat", 0) == wanted);
  CHECK(threads_by(read_text, "/proc/%d/status", getpid()) == wanted);
  CHECK(threads_by(read_text, "/proc/%d/stat", getpid()) == wanted);
  CHECK(threads_by(read_text, "/proc/self/task/%d/status", gettid()) == wanted);
  CHECK(threads_by(read_text, "/proc/thread-self/stat", 0) == wanted);
}

static int ends[2];

static void* wait_for_end(void* unused) {
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0);
  return unused;
}

// With 8 to 11 threads the number gets one digit more at different places natively and with threads of Farside's.
static void with_threads(reader read_text) {
  pthread_t threads[11];
  CHECK(pipe(ends) == 0);
  for (int n = 1; n <= 11; n++) {
    if (n == 1 || n >= 8) check_all(read_text, n);
    CHECK(pthread_create(&threads[n - 1], NULL, wait_for_end, NULL) == 0);
  }
  CHECK(close(ends[1]) == 0);
  for (int n = 0; n < 11; n++) CHECK(pthread_join(threads[n], NULL) == 0);
}

static void one_read(void) { with_threads(by_read); }
static void pieces(void) { with_threads(by_hundreds); }
static void offsets(void) { with_threads(at_offsets); }
static void vectors(void) { with_threads(by_vector); }
static void far_memory(void) { with_threads(to_far_memory); }
static void read_again(void) { with_threads(twice); }
static void bytes(void) { check_all(by_bytes, 1); }

static void stream(void) {
  char text[ROOM];
  for (int is_stat = 0; is_stat <= 1; is_stat++) {
    FILE* file = fopen(is_stat ? "/proc/self/stat" : "/proc/self/status", "r");
    CHECK(file);
    text[fread(text, 1, ROOM - 1, file)] = 0;
    CHECK(feof(file) && fclose(file) == 0 && threads_in(text, is_stat) == 1);
  }
}

static void child(void) {
  pid_t number = fork();
  CHECK(number >= 0);
  if (number == 0) {
    check_all(by_read, 1);
    _exit(0);
  }
  int status;
  CHECK(waitpid(number, &status, 0) == number && status == 0);
}

// A text of another file that looks like it stays as it is.
static void other_file(void) {
  static const char kText[] = "Name:\tx\nThreads:\t1000\n";
  char name[] = "/tmp/farside-status-XXXXXX", text[100] = "";
  int fd = mkstemp(name);
  CHECK(fd >= 0 && unlink(name) == 0 && write(fd, kText, sizeof kText) == sizeof kText);
  CHECK(pread(fd, text, sizeof text, 0) == sizeof kText && strcmp(text, kText) == 0);
  CHECK(threads_by(by_read, "/proc/1/status", 0) >= 1);
}

static void other_program(void) {
  fflush(stdout);
  CHECK(system("grep Threads /proc/self/status; read line < /proc/$$/stat; echo ${line##*) } | cut -d' ' -f 18") == 0);
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"one_read", one_read},
                                           {"pieces", pieces},
                                           {"bytes", bytes},
                                           {"offsets", offsets},
                                           {"vectors", vectors},
                                           {"far_memory", far_memory},
                                           {"child", child},
                                           {"read_again", read_again},
                                           {"stream", stream},
                                           {"other_file", other_file},
                                           {"other_program", other_program},
                                           {NULL, NULL}};
  return run_case(argc, argv, cases);
}
