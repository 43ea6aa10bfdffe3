// Changes memory in known ways, for the tests of farside track. Reads one action per line and replies "done".
//   lines PAGES FIRST COUNT   in each of PAGES pages changes a byte in COUNT consecutive lines from line FIRST on
//   whole PAGES               changes every byte of PAGES pages
//   same PAGES                writes one byte of each of PAGES pages without changing it
//   spread BLOCKS             changes one byte in each of BLOCKS blocks of 2 MiB
//   map PAGES                 makes a second mapping of PAGES pages and sets every byte of it
//   drop PAGES                unmaps the second mapping
//   again PAGES               unmaps it, makes it again at the same address, and sets every byte
//   fork PAGES                a child changes every byte of PAGES pages and exits
//   threads PAGES             as whole, in another thread
//   exec PATH                 replaces the program
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "far.h"

enum { LINE = 64 };
static unsigned char* block;
static size_t bytes;

static void change(unsigned char* from, size_t count) {
  for (size_t i = 0; i < count; i++) from[i]++;
}

static void* change_whole(void* pages) {
  change(block, (size_t)pages * PAGE);
  return NULL;
}

static void lines(size_t pages, size_t first, size_t count) {
  for (size_t p = 0; p < pages; p++) {
    for (size_t l = first; l < first + count; l++) block[p * PAGE + l * LINE + 7]++;
  }
}

static void* second;

static void map(size_t pages) {
  second = mmap(second, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(second != MAP_FAILED);
  memset(second, 1, pages * PAGE);
}

static void fork_and_change(size_t pages) {
  pid_t child = fork();
  if (child == 0) {
    change(block, pages * PAGE);
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child);
}

static int act(const char* line) {
  char what[16] = "", path[256];
  size_t a = 0, b = 0, c = 0;
  sscanf(line, "%15s %zu %zu %zu", what, &a, &b, &c);
  if (!strcmp(what, "lines")) lines(a, b, c);
  else if (!strcmp(what, "whole")) change(block, a * PAGE);
  else if (!strcmp(what, "same"))
    for (size_t p = 0; p < a; p++) ((volatile unsigned char*)block)[p * PAGE] = block[p * PAGE];
  else if (!strcmp(what, "spread"))
    for (size_t i = 0; i < a; i++) block[i * 2 * MIB]++;
  else if (!strcmp(what, "map")) map(a);
  else if (!strcmp(what, "drop")) CHECK(munmap(second, a * PAGE) == 0);
  else if (!strcmp(what, "again")) {
    CHECK(munmap(second, a * PAGE) == 0);
    map(a);
  } else if (!strcmp(what, "fork")) fork_and_change(a);
  else if (!strcmp(what, "threads")) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, change_whole, (void*)a) == 0 && pthread_join(thread, NULL) == 0);
  } else if (sscanf(line, "exec %255s", path) == 1) execl(path, path, "16", (char*)NULL);
  else return 0;
  return 1;
}

// Input and output without libc's buffers, which would be more changed pages.
static int read_line(char* line, size_t size) {
  for (size_t i = 0; i + 1 < size && read(0, line + i, 1) == 1; i++) {
    line[i + 1] = 0;
    if (line[i] == '\n') return 1;
  }
  return 0;
}

static void print_text(const char* text) { CHECK(write(1, text, strlen(text)) == (ssize_t)strlen(text)); }

// argv[1]: MiB; the block begins at a multiple of 2 MiB. argv[2]: the exit status.
int main(int argc, char** argv) {
  bytes = strtoul(argv[1], NULL, 10) * MIB;
  block = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(block != MAP_FAILED);
  block += 2 * MIB - (size_t)block % (2 * MIB);
  memset(block, 5, bytes);
  print_text("ready\n");
  static char line[300];
  while (read_line(line, sizeof line)) {
    CHECK(act(line));
    print_text("done\n");
  }
  _exit(argc > 2 ? atoi(argv[2]) : 0);
}
