// Windows of a process's run: what was written is looked up, read, compared with what it held before, and kept.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/track/areas.h"
#include "cli/track/compare.h"
#include "cli/track/snapshot.h"
#include "cli/track/tracee.h"
#include "cli/track/write_tracker.h"

namespace farside::cli::track {

struct Window {
  double begin_seconds = 0, seconds = 0;  // since tracking began
  Changes changes;
  uint64_t compared_pages = 0;
  uint64_t write_faults = 0;     // that the process took since its pages were protected
  uint64_t left_out_bytes = 0;   // in areas that another userfaultfd serves
  double looking_seconds = 0;    // asking the kernel what was written
  double comparing_seconds = 0;  // reading, comparing and keeping it
};

// What a private mapping of a file holds before it is written.
class MappedFiles {
 public:
  explicit MappedFiles(pid_t pid) : pid_(pid) {}
  ~MappedFiles();
  MappedFiles(const MappedFiles&) = delete;
  MappedFiles& operator=(const MappedFiles&) = delete;
  // One page; false if the file is gone or is another one now.
  bool read(const Area& area, uint64_t address, std::byte* page);

 private:
  pid_t pid_;
  std::map<uint64_t, int> files_;  // by inode; -1: cannot be read
};

class Tracker {
 public:
  Tracker(Tracee& tracee, uint64_t snapshot_bytes);

  // Everything that the process holds now is what later windows are compared with. Also called for a new program after
  // exec. The process is stopped for it; with `let_run` it goes on before its pages are copied, which may take long.
  Status begin(const WriteTracker::Method* wanted, bool let_run = false);

  // Ends a window and begins the next. Of a process that began another program meanwhile only a part is compared.
  Result<Window> look();

  WriteTracker::Method method() const { return writes_->method(); }
  const std::string& why_not() const { return why_not_; }  // why the best method was not taken, ""
  uint64_t snapshot_bytes() const { return snapshot_ ? snapshot_->bytes() : 0; }

 private:
  struct Piece {
    const Area* area;
    uint64_t address;
    bool known;  // written, by the kernel's word
  };
  Status take_areas(bool keep_only, Window* window);
  Status take_area(const Area& area, bool keep_only, Window* window);
  void add_pages(const Area& area, const Written& written, bool keep_only, Window* window);
  bool read_batch(bool keep_only, Window* window);
  void compare_piece(const Piece& piece, const std::byte* now, Window* window);

  Tracee& tracee_;
  uint64_t most_bytes_;
  std::string why_not_;
  std::unique_ptr<WriteTracker> writes_;
  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<MappedFiles> files_;
  std::vector<Area> areas_;
  std::vector<Piece> batch_;
  std::vector<std::byte> buffer_;
  uint64_t first_ns_ = 0, window_ns_ = 0;
  bool replaced_ = false;  // another program runs: what is read is not what was asked for
};

}  // namespace farside::cli::track
