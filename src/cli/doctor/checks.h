// The checks of `farside doctor`; doctor.cc prints their results.
#pragma once
#include <string>
#include <vector>

#include "abi/options.h"
#include "launch/machine_check.h"

namespace farside::cli {

struct Diagnosis {
  std::vector<Finding> findings;
  ModeChoice choice;
  // True if one of the fault modes works and no check has Health::kMissing.
  bool usable() const;
};

// Probes this machine. options.space is the address space to check for.
Diagnosis diagnose(const Options& options);

// "6.18.44-x" -> 6 * 1000 + 18; 0 if it cannot be read.
int kernel_number(const std::string& release);

const char* health_name(Health health);

}  // namespace farside::cli
