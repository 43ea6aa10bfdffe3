// System calls that change the address space, descriptors or processes, and so concern Farside itself; also futex,
// ioctl, exec and calls that are refused. Separate from syscall_table.h, because each has its own code.
// Async-signal-safe.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Executes the call if it is one of these and stores the kernel's result; false otherwise. Calls that need the
// interrupted context (signal masks, clone, sigreturn) are handled before, in traps.cc.
bool special_call(const Call& call, long* result);

// close, close_range, dup2 and dup3 of the program, which must not affect Farside's descriptors.
long guarded_close(int fd);
long guarded_close_range(unsigned first, unsigned last, unsigned flags);
long guarded_dup(long number, int from, int to, int flags);

// execve and execveat: the kernel reads path, arguments and environment from near copies.
long guarded_exec(const Call& call);

// A near copy of a NULL-terminated list of strings, in one mapping.
class NearStrings {
 public:
  explicit NearStrings(const char* const* list);
  ~NearStrings();
  NearStrings(const NearStrings&) = delete;
  NearStrings& operator=(const NearStrings&) = delete;
  char* const* get() const { return list_; }  // nullptr for nullptr

 private:
  char** list_ = nullptr;
  size_t bytes_ = 0;
};

// A near copy of one string (at most 4 KiB, as paths are).
class NearPath {
 public:
  explicit NearPath(const char* path);
  const char* get() const { return path_; }

 private:
  char copy_[4096 + 1];
  const char* path_;
};

}  // namespace farside::preload
