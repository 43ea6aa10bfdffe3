// Programs that replace this one or are started by it: execve, execveat, posix_spawn. The kernel reads what they are
// given from near copies. Async-signal-safe.
#pragma once
#include "preload/guard/guard.h"

namespace farside::preload {

// Before the first of the calls below. Not async-signal-safe.
void find_own_library();

// execve and execveat. Notes for the report of the run that the process becomes another program.
long guarded_exec(const Call& call);

// Notes for the report of the run if the program in this file cannot have the preload library in it.
void note_if_native(const char* path, const char* const* environment);

// A near copy of a NULL-terminated list of strings, in one mapping.
class NearStrings {
 public:
  explicit NearStrings(const char* const* list) : NearStrings(list, 0) {}
  ~NearStrings();
  NearStrings(const NearStrings&) = delete;
  NearStrings& operator=(const NearStrings&) = delete;
  char* const* get() const { return list_; }  // nullptr for nullptr

 protected:
  // With room for one more string of `spare` bytes.
  NearStrings(const char* const* list, size_t spare);
  char** list_ = nullptr;
  char* spare_ = nullptr;

 private:
  size_t bytes_ = 0;
};

// The environment of a program. LD_PRELOAD, if it names other libraries only, gets the preload library in addition: the
// program that set it wanted those, and keeps its far memory. A program that removes or empties LD_PRELOAD starts
// others natively.
class NearEnvironment : public NearStrings {
 public:
  explicit NearEnvironment(const char* const* list);
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
