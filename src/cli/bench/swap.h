// The kernel's own way to far memory, for comparison: swap on a compressed RAM disk (zram), and a memory cgroup
// (version 1 or 2) that makes a process use it. Needs root. Both undo themselves when destroyed.
#pragma once
#include <memory>
#include <string>

#include "base/status.h"

namespace farside::cli::bench {

// A zram device of its own in use as swap, preferred to other swap. Devices that were there before stay untouched.
class ZramSwap {
 public:
  static Result<std::unique_ptr<ZramSwap>> create(uint64_t bytes);
  ~ZramSwap();
  ZramSwap(const ZramSwap&) = delete;
  ZramSwap& operator=(const ZramSwap&) = delete;
  std::string algorithm() const;  // "lzo-rle": the compression in use

 private:
  ZramSwap() = default;
  Status prepare(uint64_t bytes);
  std::string device() const;
  std::string setting(const char* name) const;
  int number_ = -1;
  bool swapping_ = false;
};

// A cgroup whose processes together may hold so much memory.
class MemoryLimit {
 public:
  static Result<std::unique_ptr<MemoryLimit>> create(uint64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  // A process that writes a 0 to this file moves itself into the group.
  const std::string& members_file() const { return members_; }
  Status enter() const;

 private:
  MemoryLimit() = default;
  std::string path_, members_;
};

}  // namespace farside::cli::bench
