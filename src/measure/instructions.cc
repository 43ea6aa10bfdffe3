#include "measure/instructions.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace farside {

std::optional<uint64_t> count_instructions(const std::function<void()>& work) {
  pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) < 0) _exit(1);
    raise(SIGSTOP);
    work();
    raise(SIGSTOP);
    _exit(0);
  }
  uint64_t steps = 0;
  int status = 0;
  bool began = waitpid(child, &status, 0) == child && WIFSTOPPED(status);
  while (began) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) < 0 || waitpid(child, &status, 0) != child) break;
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) break;
    steps++;
  }
  bool complete = began && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
  if (began) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  return complete ? std::optional(steps) : std::nullopt;
}

}  // namespace farside
