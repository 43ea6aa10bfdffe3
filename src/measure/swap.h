// Swap by the kernel, for comparison: a compressed RAM disk (zram) as swap area, and a memory cgroup (version 1 or 2)
// that forces a process to use it. Needs root. Every object undoes its settings when it is destroyed.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside {

// A new zram device in use as swap, with the highest priority. Existing devices are not touched.
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

// A file, or all of a block device, in use as swap, with the highest priority.
class FileSwap {
 public:
  // place: a folder, or a device without data, whose first page is cleared at the end. A folder on a loop device is
  // refused: kernels have locked up when the file system below, or tmpfs, needed memory in order to write swap.
  static Result<std::unique_ptr<FileSwap>> create(const std::string& place, uint64_t bytes);
  ~FileSwap();
  FileSwap(const FileSwap&) = delete;
  FileSwap& operator=(const FileSwap&) = delete;

 private:
  FileSwap(std::string path, bool is_device) : path_(std::move(path)), is_device_(is_device) {}
  Status prepare_file(uint64_t bytes);
  Status prepare_device();
  Status use(uint64_t bytes);
  const std::string path_;
  const bool is_device_;
  bool swapping_ = false;
};

bool is_block_device(const std::string& path);
// Overwrites what shows that a device has data.
void clear_head(const std::string& device);

// A cgroup whose processes may use that much memory in total.
class MemoryLimit {
 public:
  static Result<std::unique_ptr<MemoryLimit>> create(uint64_t bytes);
  // For a process with `bytes` of data, of which `local` (a share) may be resident.
  static Result<std::unique_ptr<MemoryLimit>> create_for(uint64_t bytes, double local);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  // Words that precede a command and make it run in the cgroup.
  std::vector<std::string> launcher() const;
  // Moves this process into the cgroup.
  Status enter() const;
  // From now on, processes for which the kernel finds no memory are not killed, but wait until swap has been written: a
  // process of this one's looks every millisecond. Without effect with version 2.
  void keep_alive();
  // The number of its processes that the kernel killed for lack of memory.
  uint64_t kills() const;

 private:
  MemoryLimit() = default;
  [[noreturn]] void relieve() const;
  std::string limit() const;
  std::string path_, members_;
  uint64_t bytes_ = 0;
  bool version1_ = false;
  pid_t keeper_ = -1;
};

// Swap and a memory limit for processes that run one after another with `bytes` of data, of which `local` (a share) may
// be resident.
class KernelSwap {
 public:
  static Result<std::unique_ptr<KernelSwap>> create(uint64_t bytes, double local);
  std::string algorithm() const { return swap_->algorithm(); }
  const MemoryLimit& limit() const { return *limit_; }
  // Moves this process into the cgroup for the rest of its life and maps memory for the data.
  Result<std::byte*> enter_and_map(uint64_t bytes) const;

 private:
  KernelSwap() = default;
  std::unique_ptr<ZramSwap> swap_;
  std::unique_ptr<MemoryLimit> limit_;
};

// Anonymous memory in 4 KiB pages, as far memory has them.
Result<std::byte*> map_plain(uint64_t bytes);

}  // namespace farside
