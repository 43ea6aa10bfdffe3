// The checks of `farside doctor`; doctor.cc prints their results.
#pragma once
#include <string>
#include <vector>

#include "abi/options.h"

namespace farside::cli {

enum class Health { kOk, kLimited, kMissing };

struct Finding {
  std::string name;
  Health health;
  std::string found;   // the state of this machine
  std::string advice;  // how to fix it; "" where nothing needs fixing
};

// The mode that --fault=auto selects here. `usable` is false where neither mode works.
struct ModeChoice {
  bool usable;
  std::string mode;
  std::string reason;
};

struct Diagnosis {
  std::vector<Finding> findings;
  ModeChoice choice;
  // True if one of the fault modes works and no check has Health::kMissing.
  bool usable() const;
};

// Probes this machine. options.space is the address space to check for.
Diagnosis diagnose(const Options& options);

// What this machine supports, and the mode that follows from it.
struct FaultAbilities {
  bool self_paging;     // SIGBUS and write protection work
  bool traps_syscalls;  // Syscall User Dispatch works
  bool kernel_faults;   // a userfaultfd that also reports faults of the kernel
};
ModeChoice choose_mode(const FaultAbilities& abilities);

// "6.18.44-x" -> 6 * 1000 + 18; 0 if it cannot be read.
int kernel_number(const std::string& release);

const char* health_name(Health health);

}  // namespace farside::cli
