// Ends as its arguments say: status N | signal N | echo WORDS | wait (for SIGTERM; exits with 42).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_term(int number) {
  (void)number;
  _exit(42);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  char* block = malloc(1 << 20);
  if (!block) return 3;
  memset(block, 7, 1 << 20);
  if (!strcmp(argv[1], "status")) return atoi(argv[2]);
  if (!strcmp(argv[1], "signal")) return raise(atoi(argv[2]));
  if (!strcmp(argv[1], "echo")) {
    for (int i = 2; i < argc; i++) puts(argv[i]);
    return 0;
  }
  if (strcmp(argv[1], "wait")) return 2;
  signal(SIGTERM, on_term);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
