#include "remote/far_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "base/os.h"
#include "base/private_file.h"
#include "base/size.h"
#include "wire/protocol.h"

namespace farside::remote {
namespace {

using transport::SlotFile;

constexpr char kDeviceMark[] = "Farside far memory\n";  // at the begin of a device that Farside may overwrite
constexpr uint64_t kWipeBytes = kMiB;
constexpr uint64_t kSmallest = 4 * wire::kSlabBytes;

// A buffer for direct I/O.
struct Aligned {
  explicit Aligned(size_t size) : bytes(size), data(static_cast<char*>(aligned_alloc(kPageSize, size))) {
    memset(data, 0, size);
  }
  ~Aligned() { free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  const size_t bytes;
  char* const data;
};

}  // namespace

bool FarFile::is_unused(int fd) {
  Aligned head(SlotFile::kHeaderBytes);
  if (pread(fd, head.data, head.bytes, 0) != static_cast<ssize_t>(head.bytes)) return false;
  if (memcmp(head.data, kDeviceMark, sizeof kDeviceMark) == 0) return true;
  return std::all_of(head.data, head.data + head.bytes, [](char c) { return c == 0; });
}

Result<std::unique_ptr<FarFile>> FarFile::create(const Address& address) {
  std::unique_ptr<FarFile> file(new FarFile(address));
  if (address.file.crypt && !transport::XtsCipher::is_supported())
    return Status::error(ENOTSUP, "crypt=yes needs the processor's AES instructions; use {} without it", file->name_);
  Status opened = file->open();
  if (!opened.ok()) return opened;
  auto space = SlotFile::create(file->fd_, {.bytes = file->lent_,
                                            .file_bytes = file->file_bytes_,
                                            .is_allocated = file->is_device_ || file->settings_.is_allocated,
                                            .encrypts = file->settings_.crypt});
  if (!space.ok()) return space.status();
  file->space_ = std::move(*space);
  return file;
}

FarFile::~FarFile() {
  if (settings_.wipe && space_) wipe();
  if (space_) ::close(space_->space_fd());
  space_.reset();
  if (fd_ >= 0) ::close(fd_);
}

Status FarFile::error(const char* action, int error) const {
  return Status::error(error, "cannot {} the far file {}: {}", action, name_, strerror(error));
}

Status FarFile::open() {
  struct stat info = {};
  bool exists = stat(settings_.path, &info) == 0;
  is_device_ = exists && S_ISBLK(info.st_mode);
  if (exists && !is_device_ && !S_ISDIR(info.st_mode))
    return Status::error(EEXIST, "the far file {} exists; remove it, or name a file that does not exist, or a folder",
                         name_);
  Status opened = is_device_ ? open_device() : open_file();
  if (opened.ok()) fd_ = os::move_fd_high(fd_);
  return opened;
}

Status FarFile::open_device() {
  fd_ = ::open(settings_.path, O_RDWR | O_EXCL | O_DIRECT | O_CLOEXEC);
  if (fd_ < 0 && errno == EBUSY)
    return Status::error(EBUSY, "the device {} is in use; unmount it, or end what uses it", name_);
  if (fd_ < 0) return error("open", errno);
  if (!is_unused(fd_))
    return Status::error(
        EEXIST, "the device {} has data, which far memory would overwrite; if it is not needed, run wipefs -a", name_);
  uint64_t all = 0;
  if (ioctl(fd_, BLKGETSIZE64, &all) != 0) return error("measure", errno);
  uint64_t least = kSmallest + SlotFile::spare_bytes(kSmallest) + SlotFile::kHeaderBytes;
  if (all < least) return Status::error(ENOSPC, "the device {} has less than {}", name_, format_size(least));
  file_bytes_ = align_down(all, kPageSize);
  lent_ = align_down(all - SlotFile::spare_bytes(all) - SlotFile::kHeaderBytes, wire::kSlabBytes);
  if (settings_.bytes > lent_)
    return Status::error(ENOSPC, "the device {} can lend {} at most; lower its size", name_, format_size(lent_));
  if (settings_.bytes > 0) lent_ = settings_.bytes;
  Aligned mark(kPageSize);
  memcpy(mark.data, kDeviceMark, sizeof kDeviceMark);
  return pwrite(fd_, mark.data, mark.bytes, 0) == static_cast<ssize_t>(mark.bytes) ? Status() : error("write", errno);
}

Status FarFile::open_file() {
  if (settings_.bytes == 0) return Status::error(EINVAL, "{} has no size; write file:PATH?size=64G", name_);
  if (settings_.bytes < kSmallest)
    return Status::error(EINVAL, "{}: the size is less than {}", name_, format_size(kSmallest));
  bool bypasses_cache = false;
  fd_ = open_private_file(settings_.path, &bypasses_cache);
  if (fd_ < 0) return error("create", -fd_);
  if (!bypasses_cache)
    log(LogLevel::kWarning,
        "the file system of {} has no direct I/O: far pages take RAM in its cache, too; use a file system on a disk",
        name_);
  return size_file();
}

Status FarFile::size_file() {
  lent_ = align_up(settings_.bytes, wire::kSlabBytes);
  file_bytes_ = lent_ + SlotFile::spare_bytes(lent_) + SlotFile::kHeaderBytes;
  struct statfs system = {};
  uint64_t room = fstatfs(fd_, &system) == 0 ? system.f_bavail * static_cast<uint64_t>(system.f_bsize) : ~uint64_t{0};
  if (ftruncate(fd_, static_cast<off_t>(file_bytes_)) != 0) return error("size", errno);
  int r = settings_.is_allocated ? os::fallocate(fd_, 0, 0, static_cast<off_t>(file_bytes_)) : 0;
  if (r == -ENOSPC || (settings_.is_allocated && room < file_bytes_))
    return Status::error(ENOSPC, "the file system of {} has {} free, and the file needs {}; lower its size", name_,
                         format_size(room), format_size(file_bytes_));
  if (r < 0) return error("allocate", -r);
  if (room < file_bytes_)
    log(LogLevel::kWarning, "the file system of {} has {} free, less than the {} that the file may need", name_,
        format_size(room), format_size(file_bytes_));
  return {};
}

std::string FarFile::hand_over() {
  for (int fd : {fd_, space_->space_fd()}) fcntl(fd, F_SETFD, 0);
  return fmt::format("{},{}", fd_, space_->space_fd());
}

void FarFile::wipe() {
  Aligned zeros(kWipeBytes);
  for (uint64_t at = SlotFile::kHeaderBytes; at < space_->provided_bytes();) {
    size_t step = std::min<uint64_t>(kWipeBytes, space_->provided_bytes() - at);
    ssize_t n = pwrite(fd_, zeros.data, step, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return log(LogLevel::kWarning, "cannot overwrite the far file {}: {}", name_, strerror(errno));
    at += static_cast<uint64_t>(n);
  }
  if (fdatasync(fd_) != 0) log(LogLevel::kWarning, "cannot overwrite the far file {}: {}", name_, strerror(errno));
}

}  // namespace farside::remote
