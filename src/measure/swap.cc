#include "measure/swap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/major.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "base/bits.h"
#include "base/os.h"
#include "remote/far_file.h"
#include "report/machine.h"

namespace farside {
namespace {

constexpr const char* kControl = "/sys/class/zram-control";
constexpr const char* kCgroup2 = "/sys/fs/cgroup";
constexpr const char* kCgroup1 = "/sys/fs/cgroup/memory";
constexpr size_t kHeadBytes = 256 * 1024;  // that remote::FarFile looks at
constexpr int kRemovalTries = 500;
constexpr uint64_t kRemovalWaitNs = 10'000'000;
// Code, stacks and page tables of a process count in its memory limit, too.
constexpr uint64_t kProcessAllowance = 8 * kMiB;

Status write_file(const std::string& path, const std::string& text) {
  int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Status::error(errno, "cannot open {}: {}", path, strerror(errno));
  ssize_t n = write(fd, text.data(), text.size());
  int error = errno;
  close(fd);
  if (n == static_cast<ssize_t>(text.size())) return {};
  return Status::error(error, "cannot write {} to {}: {}", text, path, strerror(error));
}

// At the begin of a file or device.
Status write_head(const std::string& path, const std::vector<char>& head) {
  int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Status::error(errno, "cannot open {}: {}", path, strerror(errno));
  ssize_t n = write(fd, head.data(), head.size());
  bool stored = n == static_cast<ssize_t>(head.size()) && fsync(fd) == 0;
  close(fd);
  return stored ? Status() : Status::error(EIO, "cannot write {}", path);
}

// The header that mkswap writes: version, last page, and the magic number at the end of the first page.
Status write_swap_header(const std::string& device, uint64_t bytes) {
  std::vector<char> page(kPageSize, 0);
  uint32_t fields[] = {1, static_cast<uint32_t>(bytes / kPageSize - 1)};
  memcpy(page.data() + 1024, fields, sizeof fields);
  memcpy(page.data() + kPageSize - 10, "SWAPSPACE2", 10);
  return write_head(device, page);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

Result<std::unique_ptr<ZramSwap>> ZramSwap::create(uint64_t bytes) {
  if (geteuid() != 0) return Status::error(EPERM, "needs root");
  if (!exists(fmt::format("{}/hot_add", kControl))) return Status::error(ENOENT, "this kernel has no zram");
  std::unique_ptr<ZramSwap> made(new ZramSwap);
  Status prepared = made->prepare(align_up(bytes, kPageSize));
  if (!prepared.ok()) return prepared;
  return made;
}

Status ZramSwap::prepare(uint64_t bytes) {
  std::string number = read_line(fmt::format("{}/hot_add", kControl));  // reading it adds a device
  if (number.empty()) return Status::error(ENODEV, "the kernel added no zram device");
  number_ = std::stoi(number);
  Status sized = write_file(setting("disksize"), std::to_string(bytes));
  if (!sized.ok()) return sized;
  Status header = write_swap_header(device(), bytes);
  if (!header.ok()) return header;
  if (swapon(device().c_str(), SWAP_FLAG_PREFER | SWAP_FLAG_PRIO_MASK) != 0) {
    return Status::error(errno, "cannot use {} as swap: {}", device(), strerror(errno));
  }
  swapping_ = true;
  return {};
}

ZramSwap::~ZramSwap() {
  if (swapping_) swapoff(device().c_str());
  if (number_ < 0) return;
  (void)write_file(setting("reset"), "1");
  (void)write_file(fmt::format("{}/hot_remove", kControl), std::to_string(number_));
}

std::string ZramSwap::device() const { return fmt::format("/dev/zram{}", number_); }

std::string ZramSwap::setting(const char* name) const { return fmt::format("/sys/block/zram{}/{}", number_, name); }

std::string ZramSwap::algorithm() const {
  std::string all = read_line(setting("comp_algorithm"));  // "[lzo-rle] lzo lz4"
  size_t open = all.find('['), close = all.find(']');
  return open == all.npos || close == all.npos ? all : all.substr(open + 1, close - open - 1);
}

bool is_block_device(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISBLK(info.st_mode);
}

void clear_head(const std::string& device) { (void)write_head(device, std::vector<char>(kHeadBytes, 0)); }

Result<std::unique_ptr<FileSwap>> FileSwap::create(const std::string& place, uint64_t bytes) {
  if (geteuid() != 0) return Status::error(EPERM, "needs root");
  bool is_device = is_block_device(place);
  std::string path = is_device ? place : fmt::format("{}/farside-swap-{}", place, getpid());
  std::unique_ptr<FileSwap> made(new FileSwap(path, is_device));
  struct stat info = {};
  if (!is_device && stat(place.c_str(), &info) == 0 && major(info.st_dev) == LOOP_MAJOR)
    return Status::error(EINVAL, "a swap file on a loop device can lock up the kernel; name the device itself");
  Status prepared = is_device ? made->prepare_device() : made->prepare_file(align_up(bytes, kPageSize));
  if (!prepared.ok()) return prepared;
  return made;
}

Status FileSwap::prepare_file(uint64_t bytes) {
  int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  int error = fd < 0 ? -errno : os::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  if (fd >= 0) close(fd);
  if (error < 0) return Status::error(-error, "cannot create {}: {}", path_, strerror(-error));
  return use(bytes);
}

Status FileSwap::prepare_device() {
  int fd = open(path_.c_str(), O_RDWR | O_EXCL | O_CLOEXEC);
  uint64_t bytes = 0;
  bool known = fd >= 0 && ioctl(fd, BLKGETSIZE64, &bytes) == 0;
  int error = errno;
  bool unused = known && remote::FarFile::is_unused(fd);
  if (fd >= 0) close(fd);
  if (!known) return Status::error(error, "cannot open {}: {}", path_, strerror(error));
  if (!unused) return Status::error(EEXIST, "the device {} has data", path_);
  return use(align_down(bytes, kPageSize));
}

Status FileSwap::use(uint64_t bytes) {
  Status header = write_swap_header(path_, bytes);
  if (!header.ok()) return header;
  if (swapon(path_.c_str(), SWAP_FLAG_PREFER | SWAP_FLAG_PRIO_MASK) != 0)
    return Status::error(errno, "cannot use {} as swap: {}", path_, strerror(errno));
  swapping_ = true;
  return {};
}

FileSwap::~FileSwap() {
  if (swapping_) swapoff(path_.c_str());
  if (!is_device_) unlink(path_.c_str());
  else if (swapping_) clear_head(path_);
}

Result<std::unique_ptr<MemoryLimit>> MemoryLimit::create_for(uint64_t bytes, double local) {
  return create(static_cast<uint64_t>(local * static_cast<double>(bytes)) + kProcessAllowance);
}

Result<std::unique_ptr<MemoryLimit>> MemoryLimit::create(uint64_t bytes) {
  bool version1 = exists(fmt::format("{}/memory.limit_in_bytes", kCgroup1));
  if (!version1) (void)write_file(fmt::format("{}/cgroup.subtree_control", kCgroup2), "+memory");
  std::unique_ptr<MemoryLimit> made(new MemoryLimit);
  std::string path = fmt::format("{}/farside-bench-{}", version1 ? kCgroup1 : kCgroup2, getpid());
  if (mkdir(path.c_str(), 0755) != 0) return Status::error(errno, "cannot create {}: {}", path, strerror(errno));
  made->path_ = path;
  made->version1_ = version1;
  made->members_ = path + "/cgroup.procs";
  made->bytes_ = bytes;
  Status limited = write_file(made->limit(), std::to_string(bytes));
  if (!limited.ok()) return limited;
  return made;
}

std::string MemoryLimit::limit() const {
  return fmt::format("{}/{}", path_, version1_ ? "memory.limit_in_bytes" : "memory.max");
}

void MemoryLimit::keep_alive() {
  if (!version1_ || !write_file(path_ + "/memory.oom_control", "1").ok()) return;
  keeper_ = fork();
  if (keeper_ == 0) relieve();
}

// A raised limit wakes the processes that wait for memory.
void MemoryLimit::relieve() const {
  constexpr uint64_t kPauseNs = 1'000'000;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;; os::nanosleep_ns(kPauseNs)) {
    std::ifstream file(path_ + "/memory.oom_control");
    uint64_t waits = 0, value = 0;
    for (std::string name; file >> name >> value;) {
      if (name == "under_oom") waits = value;
    }
    if (waits == 0) continue;
    (void)write_file(limit(), std::to_string(bytes_ + kPageSize));
    (void)write_file(limit(), std::to_string(bytes_));
  }
}

MemoryLimit::~MemoryLimit() {
  if (path_.empty()) return;
  if (keeper_ > 0) {
    kill(keeper_, SIGKILL);
    waitpid(keeper_, nullptr, 0);
  }
  for (int i = 0; i < kRemovalTries && rmdir(path_.c_str()) != 0; i++) os::nanosleep_ns(kRemovalWaitNs);
}

std::vector<std::string> MemoryLimit::launcher() const {
  return {"/bin/sh", "-c", "echo 0 >\"$0\" && exec \"$@\"", members_};
}

uint64_t MemoryLimit::kills() const {
  std::ifstream file(path_ + (version1_ ? "/memory.oom_control" : "/memory.events"));
  uint64_t count = 0;
  for (std::string name; file >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

Status MemoryLimit::enter() const { return write_file(members_, "0"); }

Result<std::unique_ptr<KernelSwap>> KernelSwap::create(uint64_t bytes, double local) {
  // Twice the data: when a swap area is nearly full, the kernel frees the slots of pages that were swapped in.
  auto swap = ZramSwap::create(2 * bytes);
  if (!swap.ok()) return swap.status();
  auto limit = MemoryLimit::create_for(bytes, local);
  if (!limit.ok()) return limit.status();
  std::unique_ptr<KernelSwap> made(new KernelSwap);
  made->swap_ = std::move(*swap);
  made->limit_ = std::move(*limit);
  return made;
}

Result<std::byte*> KernelSwap::enter_and_map(uint64_t bytes) const {
  Status entered = limit_->enter();
  if (!entered.ok()) return entered;
  return map_plain(bytes);
}

Result<std::byte*> map_plain(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Status::error(errno, "no memory: {}", strerror(errno));
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace farside
