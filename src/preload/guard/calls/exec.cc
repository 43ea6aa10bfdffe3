#include "preload/guard/calls/exec.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <cstring>

#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/process/process.h"
#include "preload/guard/process/program_start.h"

namespace farside::preload {
namespace {

// Whether memory can be read. Of successive places in one page the first is tried.
class ReadablePages {
 public:
  bool has(const void* at) {
    uint64_t page = align_down(number(at), kPageSize);
    bool known = page == tried_;
    tried_ = page;
    return known || is_readable(at, 1, kNoStack);
  }
  bool has_text(const char* text) {
    for (const char* at = text; has(at);) {
      size_t rest = kPageSize - number(at) % kPageSize;
      if (memchr(at, 0, rest)) return true;
      at += rest;
    }
    return false;
  }

 private:
  static constexpr uint64_t kNoStack = ~uint64_t{0};
  uint64_t tried_ = kNoStack;
};

bool is_readable_list(const char* const* list) {
  ReadablePages places, texts;
  for (; list; list++) {
    if (!places.has(list)) return false;
    if (!*list) return true;
    if (!texts.has_text(*list)) return false;
  }
  return true;
}

bool names_file_by_path(const Call& execveat) {
  auto* path = reinterpret_cast<const char*>(execveat.arg[1]);
  bool from_here = static_cast<int>(execveat.arg[0]) == AT_FDCWD || (path && *path == '/');
  return from_here && execveat.arg[4] == 0;
}

// Returns if the call fails.
long issue_exec(const Call& near, bool with_run_fds) {
  note_exec();
  pass_run_fds(with_run_fds);
  long r = issue(near);
  pass_run_fds(true);
  note_failed_exec();
  return r;
}

// execveat with a directory or a file of its own: what is executed is not looked at.
long exec_at(const Call& call) {
  NearPath path(reinterpret_cast<const char*>(call.arg[1]));
  NearStrings arguments(reinterpret_cast<const char* const*>(call.arg[2]));
  NearEnvironment environment(reinterpret_cast<const char* const*>(call.arg[3]), true, nullptr);
  Call near = call;
  near.arg[1] = reinterpret_cast<long>(path.get());
  near.arg[2] = reinterpret_cast<long>(arguments.get());
  near.arg[3] = reinterpret_cast<long>(environment.get());
  return issue_exec(near, is_of_the_run(environment.get()));
}

}  // namespace

bool are_readable(const char* path, const char* const* arguments, const char* const* environment) {
  return (!path || ReadablePages().has_text(path)) && is_readable_list(arguments) && is_readable_list(environment);
}

long guarded_exec(const Call& call) {
  int shift = call.number == SYS_execveat ? 1 : 0;
  bool readable = are_readable(reinterpret_cast<const char*>(call.arg[shift]),
                               reinterpret_cast<const char* const*>(call.arg[shift + 1]),
                               reinterpret_cast<const char* const*>(call.arg[shift + 2]));
  if (!readable) return issue(call);
  if (shift && !names_file_by_path(call)) return exec_at(call);
  NearStart start(reinterpret_cast<const char*>(call.arg[shift]),
                  reinterpret_cast<const char* const*>(call.arg[shift + 1]),
                  reinterpret_cast<const char* const*>(call.arg[shift + 2]));
  start.note();
  Call near = call;
  near.arg[shift] = reinterpret_cast<long>(start.path());
  near.arg[shift + 1] = reinterpret_cast<long>(start.arguments());
  near.arg[shift + 2] = reinterpret_cast<long>(start.environment());
  return issue_exec(near, start.gets_run_fds());
}

}  // namespace farside::preload
