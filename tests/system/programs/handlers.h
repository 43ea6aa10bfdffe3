// For programs with signal handlers that access far memory.
#pragma once
#include <signal.h>

#include "far.h"

static volatile sig_atomic_t count;
static char* far_block;  // accessed inside handlers
#define FAR_BYTES (4 * MIB)

static inline void handle(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  CHECK(sigaction(number, &action, NULL) == 0);
}
