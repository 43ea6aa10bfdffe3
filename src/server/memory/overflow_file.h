// A file with pages for which a server's RAM has no room: an array of slots of 4 KiB. All room is allocated at the
// start, so a full disk is an error then. The file has no name, and ends with the server. Checksums are in RAM, so a
// page that the disk confuses with an older or another one is found, too. After a failed write no more slots are taken;
// those in use can be read. Results of type int are 0 or -errno. Thread-safe.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/sync.h"
#include "server/memory/page_bitmap.h"

namespace farside::server {

class OverflowFile {
 public:
  static constexpr size_t kMaxRun = 16;  // slots that are written at once

  // path: of a folder, or of a file that does not exist yet. bytes: a multiple of the page size.
  static Result<std::unique_ptr<OverflowFile>> create(const std::string& path, uint64_t bytes);
  ~OverflowFile();
  OverflowFile(const OverflowFile&) = delete;
  OverflowFile& operator=(const OverflowFile&) = delete;

  // Neighbours.
  struct Run {
    uint64_t first = 0;
    size_t count = 0;
  };
  // Takes free slots, at most as many as wanted and kMaxRun; count 0: there are none.
  Run take(size_t wanted);
  void release(uint64_t slot);
  // pages: so many, aligned to a page. They are on the disk afterwards, or none counts as written.
  int write(Run run, const std::byte* pages);
  // The whole page. -EIO: it is not what was written.
  int read(uint64_t slot, std::byte* page) const;

  // Once.
  void warn_if_nearly_full();
  uint64_t bytes() const { return slots_ * kSlotBytes; }
  uint64_t used_bytes() const { return used_ * kSlotBytes; }
  bool has_failed() const { return failed_; }
  int fd() const { return fd_; }

 private:
  static constexpr uint64_t kSlotBytes = 4096;

  OverflowFile(std::string path, int fd, uint64_t slots, bool is_direct);
  int fail(int error);

  const std::string path_;
  const int fd_;
  const uint64_t slots_;
  const bool is_direct_;
  const std::unique_ptr<std::atomic<uint32_t>[]> checksums_;  // CRC-32C
  std::atomic<uint64_t> used_{0};
  std::atomic<bool> failed_{false}, warned_{false};
  Mutex mutex_;
  PageBitmap free_ GUARDED_BY(mutex_);
  uint64_t next_ GUARDED_BY(mutex_) = 0;  // where the search for a free slot goes on
};

}  // namespace farside::server
