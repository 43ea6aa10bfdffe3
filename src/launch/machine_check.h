// What Farside needs of this machine, as `farside doctor` reports it and `farside run` requires it.
#pragma once
#include <string>

#include "abi/options.h"
#include "base/status.h"

namespace farside {

enum class Health { kOk, kLimited, kMissing };

struct Finding {
  std::string name;
  Health health;
  std::string found;   // the state of this machine
  std::string advice;  // how to fix it; "" where nothing needs fixing
};

// One finding; without advice where the check succeeded.
Finding finding(std::string name, Health health, std::string found, std::string advice);
inline Health health_of(bool good, Health otherwise) { return good ? Health::kOk : otherwise; }

// The mode that --fault=auto selects here. `usable` is false where neither mode works.
struct ModeChoice {
  bool usable;
  std::string mode;
  std::string reason;
};

// What this machine supports, and the mode that follows from it.
struct FaultAbilities {
  bool self_paging;     // SIGBUS and write protection work
  bool traps_syscalls;  // Syscall User Dispatch works
  bool kernel_faults;   // a userfaultfd that also reports faults of the kernel
};
ModeChoice choose_mode(const FaultAbilities& abilities);

Finding check_userfaultfd(bool by_syscall, bool by_device, bool user_only);
Finding check_self_paging(bool works);
Finding check_dispatch(bool works);
Finding check_pipe();
Finding check_memory_files();
Finding check_file_requests();

// Refuses what cannot work on this machine with these options, in the words of the findings. Takes about a millisecond;
// to be called before threads exist.
Status check_machine(const Options& options, bool shares_memory);
// The same for a process that serves its own faults and traps no system calls, as benchmarks do.
Status check_paging();

}  // namespace farside
