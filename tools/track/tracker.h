// Tracks a process in windows: finds the pages that were written, reads them, compares them with their previous
// content, and keeps the new content.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "process/areas.h"
#include "tools/track/compare.h"
#include "tools/track/snapshot.h"
#include "tools/track/tracee.h"
#include "tools/track/write_tracker.h"

namespace farside::track {

struct Window {
  double begin_seconds = 0, seconds = 0;  // begin: since tracking began
  Changes changes;
  uint64_t compared_pages = 0;
  uint64_t write_faults = 0;     // faults that write protection caused in the process
  uint64_t minor_faults = 0;     // of the process, for whatever reason
  uint64_t left_out_bytes = 0;   // bytes in areas that another userfaultfd serves
  double looking_seconds = 0;    // spent on requesting the written pages from the kernel
  double comparing_seconds = 0;  // spent on reading, comparing and keeping them

  // Pages that were touched, but were gone when the window ended: faults beyond those of the pages that were seen.
  uint64_t unseen_pages() const { return minor_faults - std::min(minor_faults, changes.written_pages); }
};

// The content of private file mappings before they are written.
class MappedFiles {
 public:
  explicit MappedFiles(pid_t pid) : pid_(pid) {}
  ~MappedFiles();
  MappedFiles(const MappedFiles&) = delete;
  MappedFiles& operator=(const MappedFiles&) = delete;
  // Reads one page; false if the file does not exist or was replaced.
  bool read(const Area& area, uint64_t address, std::byte* page);

 private:
  pid_t pid_;
  std::map<uint64_t, int> files_;  // by inode; -1: cannot be read
};

class Tracker {
 public:
  Tracker(Tracee& tracee, uint64_t snapshot_bytes);

  // Reads the current content of the process's memory, with which later windows are compared. Also called for the new
  // program after exec. Stops the process; with `let_run` the process continues before its pages are copied, which may
  // take long.
  Status begin(const WriteTracker::Method* wanted, bool let_run = false);

  // Ends a window and begins the next. If the process has executed another program meanwhile, only a part is compared.
  Result<Window> look();

  WriteTracker::Method method() const { return writes_->method(); }
  const std::string& why_not() const { return why_not_; }  // why no better method was used; "" if it was the best
  uint64_t snapshot_bytes() const { return snapshot_ ? snapshot_->bytes() : 0; }

 private:
  struct BatchPage {
    const Area* area;
    uint64_t address;
    bool known;  // known to be written; otherwise only present
  };
  Status take_areas(bool keep_only, Window* window);
  Status take_area(const Area& area, bool keep_only, Window* window);
  void add_pages(const Area& area, const Written& written, bool keep_only, Window* window);
  bool read_batch(bool keep_only, Window* window);
  void compare_with_snapshot(const BatchPage& page, const std::byte* now, Window* window);

  Tracee& tracee_;
  uint64_t max_bytes_;
  std::string why_not_;
  std::unique_ptr<WriteTracker> writes_;
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<MappedFiles> files_;
  std::vector<Area> areas_;
  std::vector<BatchPage> batch_;
  std::vector<std::byte> buffer_;
  uint64_t first_ns_ = 0, window_ns_ = 0;
  uint64_t minor_faults_ = 0;
  bool replaced_ = false;  // another program is running: what is read does not belong to these areas
};

}  // namespace farside::track
