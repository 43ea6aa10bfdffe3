// The kernel's own way to far memory, for comparison: swap on a compressed RAM disk (zram), and a memory cgroup
// (version 1 or 2) that makes a process use it. Needs root. All undo themselves when destroyed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside {

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
  // Words before a command that make it run inside.
  std::vector<std::string> launcher() const;
  // This process moves into it.
  Status enter() const;
  // Processes that the kernel killed in it for want of memory.
  uint64_t kills() const;

 private:
  MemoryLimit() = default;
  std::string path_, members_;
  bool version1_ = false;
};

// Both, for processes that run one after another over so much data, a share of it in memory.
class KernelSwap {
 public:
  static Result<std::unique_ptr<KernelSwap>> create(uint64_t bytes, double local);
  std::string algorithm() const { return swap_->algorithm(); }
  const MemoryLimit& limit() const { return *limit_; }
  // This process moves in, for good, and gets memory for so much data.
  Result<std::byte*> enter_and_map(uint64_t bytes) const;

 private:
  KernelSwap() = default;
  std::unique_ptr<ZramSwap> swap_;
  std::unique_ptr<MemoryLimit> limit_;
};

// Plain memory in pages of the same size as far memory's.
Result<std::byte*> map_plain(uint64_t bytes);

}  // namespace farside
