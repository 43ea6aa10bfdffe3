// Programs that replace this one (calls/exec.h) or are started by it (libc/spawn.cc). The kernel reads what they are
// given from near copies. Async-signal-safe.
#pragma once
#include <cstddef>

namespace farside::preload {

// Before the first of the calls below. Not async-signal-safe.
void find_own_library();

// Whether an entry of an environment is the variable of this name.
bool sets(const char* entry, const char* name);

// A near copy of a NULL-terminated list of strings, in one mapping.
class NearStrings {
 public:
  explicit NearStrings(const char* const* list) : NearStrings(list, 0) {}
  ~NearStrings();
  NearStrings(const NearStrings&) = delete;
  NearStrings& operator=(const NearStrings&) = delete;
  char* const* get() const { return list_; }  // nullptr for nullptr

 protected:
  // With room for EnvironmentChanges of `spare` bytes.
  NearStrings(const char* const* list, size_t spare);
  char** list_ = nullptr;
  char* spare_ = nullptr;

 private:
  size_t bytes_ = 0;
};

// Changes of an environment that a program is started with. With the library: LD_PRELOAD gets it in addition if it
// names others only, since the program that set it wanted those, and keeps its far memory. LD_PRELOAD that is removed
// or empty stays so: the program is to run natively. Without the library: LD_PRELOAD loses it. A static program's path
// is passed to static_loader; nullptr for others. An audited program gets the tunable of abi/static_tls.h.
class EnvironmentChanges {
 public:
  static constexpr size_t kAppended = 2;  // strings at most: the static program, and the tunables
  // What the changes write at most.
  static size_t room(const char* const* environment, const char* static_program);
  // The list has room for kAppended more, and `spare` has that of room().
  EnvironmentChanges(char** list, char* spare) : list_(list), spare_(spare) {}
  void make(bool with_library, const char* static_program);

 private:
  void add_library();
  void remove_library();
  void set_static_tls();
  char* set(const char* name);

  char** list_;
  char* spare_;
};

// A near copy of an environment, with the changes.
class NearEnvironment : public NearStrings {
 public:
  NearEnvironment(const char* const* list, bool with_library, const char* static_program);
};

// Whether the environment loads the library, and names the descriptor that has the options of this run.
bool is_of_the_run(const char* const* environment);

// A near copy of one string (at most 4 KiB, as paths are).
class NearPath {
 public:
  explicit NearPath(const char* path);
  const char* get() const { return path_; }

 private:
  char copy_[4096 + 1];
  const char* path_;
};

// True for the path /proc/self/exe in a static program: it names the loader instead of static_program_path().
bool is_own_executable(const char* path);

// What is known of the file of a program that is started. Interpreters of scripts are not followed.
struct FoundProgram {
  bool exists = false;           // and can be read
  const char* native = nullptr;  // why it runs natively; nullptr: it does not, or that is unknown
  bool privileged = false;       // it gets other rights than this process
  bool without_library = false;  // it does not work with the preload library
  bool by_loader = false;        // a static program that static_loader executes
};

// A program that is about to be started: what it is given, in near memory, and whether it runs natively.
class NearStart {
 public:
  NearStart(const char* path, const char* const* arguments, const char* const* environment);
  const char* path() const;  // of the file that the kernel is to execute
  char* const* arguments() const { return arguments_.get(); }
  char* const* environment() const { return environment_.get(); }
  // Notes for the report of the run that the program runs natively, if it does.
  void note() const;
  // Whether the program gets the run's descriptors: it is not privileged, and it or what it starts loads the library.
  bool gets_run_fds() const;

 private:
  NearPath path_;
  FoundProgram found_;
  NearStrings arguments_;
  NearEnvironment environment_;
};

}  // namespace farside::preload
