// Wrappers of the functions of libc that execute programs. In handler mode nothing is trapped, so they make the changes
// of the environment that the guard of exec makes in signal mode. The caller may be a child of vfork, in the memory of
// its parent: nothing is allocated, and what is unchanged is not copied.
#include <alloca.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "preload/guard/calls/exec.h"
#include "preload/guard/libc/wrapper.h"
#include "preload/guard/process/process.h"
#include "preload/guard/process/program_start.h"
#include "preload/guard/thread/pins.h"

using namespace farside;           // NOLINT: this file only forwards
using namespace farside::preload;  // NOLINT

namespace {

size_t length_of(char* const* list) {
  size_t count = 0;
  while (list[count]) count++;
  return count;
}

// Calls execute(environment) with an environment that has the changes.
template <typename Execute>
int with_changes(char* const* environment, Execute execute) {
  if (!guard_pager() || !in_handler_mode() || !environment) return execute(environment);
  if (!are_readable(nullptr, nullptr, environment)) return execute(environment);
  size_t count = length_of(environment), room = count + EnvironmentChanges::kAppended + 1;
  auto** list = static_cast<char**>(alloca(room * sizeof(char*)));
  std::fill(std::copy_n(environment, count, list), list + room, nullptr);
  auto* spare = static_cast<char*>(alloca(EnvironmentChanges::room(environment, nullptr) + 1));
  EnvironmentChanges(list, spare).make(true, nullptr);
  return execute(static_cast<char* const*>(list));
}

// The arguments of the forms that end by a null pointer: execute(list), with the first one.
template <typename Execute>
int with_list(const char* first, va_list rest, Execute execute) {
  va_list ahead;
  va_copy(ahead, rest);
  size_t count = 1;
  while (first && va_arg(ahead, char*)) count++;
  va_end(ahead);
  auto** list = static_cast<char**>(alloca((count + 1) * sizeof(char*)));
  list[0] = const_cast<char*>(first);
  for (size_t i = 1; i <= count && first; i++) list[i] = va_arg(rest, char*);
  if (!first) list[1] = nullptr;
  return execute(static_cast<char* const*>(list));
}

}  // namespace

EXPORT int execve(const char* path, char* const arguments[], char* const environment[]) {
  static const auto real = libc_function<decltype(execve)>("execve");
  return with_changes(environment, [&](char* const* changed) { return real(path, arguments, changed); });
}
EXPORT int execvpe(const char* file, char* const arguments[], char* const environment[]) {
  static const auto real = libc_function<decltype(execvpe)>("execvpe");
  return with_changes(environment, [&](char* const* changed) { return real(file, arguments, changed); });
}
EXPORT int fexecve(int fd, char* const arguments[], char* const environment[]) {
  static const auto real = libc_function<decltype(fexecve)>("fexecve");
  return with_changes(environment, [&](char* const* changed) { return real(fd, arguments, changed); });
}
EXPORT int execveat(int folder, const char* path, char* const arguments[], char* const environment[], int flags) {
  static const auto real = libc_function<decltype(execveat)>("execveat");
  return with_changes(environment, [&](char* const* changed) { return real(folder, path, arguments, changed, flags); });
}
EXPORT int execv(const char* path, char* const arguments[]) { return execve(path, arguments, environ); }
EXPORT int execvp(const char* file, char* const arguments[]) { return execvpe(file, arguments, environ); }

EXPORT int execl(const char* path, const char* first, ...) {
  va_list rest;
  va_start(rest, first);
  int r = with_list(first, rest, [&](char* const* list) { return execve(path, list, environ); });
  va_end(rest);
  return r;
}
EXPORT int execlp(const char* file, const char* first, ...) {
  va_list rest;
  va_start(rest, first);
  int r = with_list(first, rest, [&](char* const* list) { return execvpe(file, list, environ); });
  va_end(rest);
  return r;
}
EXPORT int execle(const char* path, const char* first, ...) {
  va_list rest;
  va_start(rest, first);
  int r = with_list(first, rest, [&](char* const* list) { return execve(path, list, va_arg(rest, char* const*)); });
  va_end(rest);
  return r;
}
