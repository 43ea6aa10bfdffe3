// What `farside doctor` finds out, apart from how it is shown.
#pragma once
#include <string>
#include <vector>

#include "abi/options.h"

namespace farside::cli {

enum class Health { kOk, kLimited, kMissing };

struct Finding {
  std::string name;
  Health health;
  std::string found;   // what is there
  std::string advice;  // how to mend it; "" where nothing needs mending
};

// The mode that --fault=auto takes here. `usable` is false where neither mode works.
struct ModeChoice {
  bool usable;
  std::string mode;
  std::string reason;
};

struct Diagnosis {
  std::vector<Finding> findings;
  ModeChoice choice;
  // Nothing that Farside cannot do without is missing.
  bool usable() const;
};

// Probes this machine; `options` says how much address space is wanted.
Diagnosis diagnose(const Options& options);

// Which mode fits what a machine can do.
struct FaultAbilities {
  bool self_paging;     // SIGBUS and write protection work
  bool traps_syscalls;  // Syscall User Dispatch works
  bool kernel_faults;   // a userfaultfd that also sees the kernel's faults
};
ModeChoice choose_mode(const FaultAbilities& abilities);

// "6.18.44-x" -> 6 * 1000 + 18; 0 if it cannot be read.
int kernel_number(const std::string& release);

const char* health_name(Health health);

}  // namespace farside::cli
