// `farside bench offload`: queries on far memory that the program executes natively, over far memory, or on the memory
// server, over tcp and over shared memory.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "base/bits.h"
#include "base/status.h"

namespace farside::bench {

struct OffloadSettings {
  uint64_t bytes = 256 * kMiB;
  double local = 0.1;
  unsigned repetitions = 5;
  bool quiet = false;
};

// {"machine", "settings", "cells": [{"transport", "query", "ms": {"native", "local", "server", "automatic"}}]}:
// medians. The caller has no threads.
Result<nlohmann::json> measure_offload(const OffloadSettings& settings);
std::string offload_text(const nlohmann::json& document);

}  // namespace farside::bench
