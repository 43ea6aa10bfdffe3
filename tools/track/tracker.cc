#include "tools/track/tracker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/clock.h"

namespace farside::track {
namespace {

constexpr size_t kBatchPages = 256;
alignas(64) const std::byte kZeroPage[kPageSize] = {};

double seconds_since(uint64_t ns) { return static_cast<double>(now_ns() - ns) / 1e9; }

// The tenth word of /proc/PID/stat; the second one may have spaces.
uint64_t minor_faults(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  std::istringstream words(text.substr(std::min(text.rfind(')') + 1, text.size())));
  uint64_t faults = 0;
  for (int word = 3; word < 10; word++) words >> text;
  words >> faults;
  return faults;
}

}  // namespace

MappedFiles::~MappedFiles() {
  for (auto [inode, fd] : files_) {
    if (fd >= 0) close(fd);
  }
}

bool MappedFiles::read(const Area& area, uint64_t address, std::byte* page) {
  auto found = files_.find(area.inode);
  if (found == files_.end()) {
    int fd = open(fmt::format("/proc/{}/root{}", pid_, area.name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about = {};
    if (fd >= 0 && (fstat(fd, &about) != 0 || about.st_ino != area.inode || !S_ISREG(about.st_mode))) {
      close(fd);
      fd = -1;
    }
    found = files_.emplace(area.inode, fd).first;
  }
  if (found->second < 0) return false;
  ssize_t got = pread(found->second, page, kPageSize, static_cast<off_t>(area.offset + (address - area.begin)));
  if (got < 0) return false;
  memset(page + got, 0, kPageSize - static_cast<size_t>(got));
  return true;
}

Tracker::Tracker(Tracee& tracee, uint64_t snapshot_bytes)
    : tracee_(tracee), max_bytes_(snapshot_bytes), buffer_(kBatchPages * kPageSize) {
  first_ns_ = now_ns();
}

Status Tracker::begin(const WriteTracker::Method* wanted, bool let_run) {
  if (!tracee_.stop()) return Status::error(ESRCH, "process {} ended before it could be tracked", tracee_.pid());
  auto writes = make_write_tracker(tracee_, wanted, &why_not_);
  if (!writes.ok()) return writes.status();
  writes_ = std::move(*writes);
  snapshot_ = std::make_unique<Snapshot>(max_bytes_);
  files_ = std::make_unique<MappedFiles>(tracee_.pid());
  areas_.clear();
  if (let_run) tracee_.resume();
  window_ns_ = now_ns();
  minor_faults_ = minor_faults(tracee_.pid());
  Window unused;
  return take_areas(true, &unused);
}

Result<Window> Tracker::look() {
  Window window;
  uint64_t now = now_ns();
  window.begin_seconds = static_cast<double>(window_ns_ - first_ns_) / 1e9;
  window.seconds = static_cast<double>(now - window_ns_) / 1e9;
  window_ns_ = now;
  uint64_t faults = minor_faults(tracee_.pid());
  window.minor_faults = faults - std::min(faults, std::exchange(minor_faults_, faults));
  Status taken = take_areas(false, &window);
  if (!taken.ok()) return taken;
  return window;
}

Status Tracker::take_areas(bool keep_only, Window* window) {
  replaced_ = false;
  auto areas = process::read_areas(tracee_.pid());
  if (!areas.ok()) return areas.status();
  areas_ = process::areas_to_track(std::move(*areas), areas_);
  snapshot_->forget_all_but(areas_);
  uint64_t start = now_ns();
  Status begun = writes_->begin_window(areas_);
  window->looking_seconds += seconds_since(start);
  if (!begun.ok()) return begun;
  for (const Area& area : areas_) {
    Status taken = take_area(area, keep_only, window);
    if (!taken.ok()) return taken;
  }
  read_batch(keep_only, window);
  return {};
}

Status Tracker::take_area(const Area& area, bool keep_only, Window* window) {
  uint64_t start = now_ns();
  auto written = writes_->take(area);
  window->looking_seconds += seconds_since(start);
  if (!written.ok()) return written.status();
  if (written->fresh) snapshot_->forget(area.begin, area.end);
  if (written->left_out) window->left_out_bytes += area.bytes();
  add_pages(area, *written, keep_only, window);
  return {};
}

void Tracker::add_pages(const Area& area, const Written& written, bool keep_only, Window* window) {
  for (const PageRun& run : written.pages) {
    if (run.absent) {  // has the mapping's initial content
      if (!area.shared) snapshot_->forget(run.begin, run.end);
      continue;
    }
    for (uint64_t page = run.begin; page < run.end && !replaced_; page += kPageSize) {
      bool first_seen = snapshot_->find(page).seen == Snapshot::Seen::kNever;
      if (run.clean && first_seen) continue;
      bool may_be_read_only = first_seen && area.backing == process::Backing::kSharedFile;
      if (written.known && !keep_only && !may_be_read_only) {
        window->changes.written_pages++;
        if (!written.fresh) window->write_faults++;
      }
      batch_.push_back({&area, page, written.known});
      if (batch_.size() == kBatchPages) read_batch(keep_only, window);
    }
  }
}

// Reads and compares the pages of the batch.
bool Tracker::read_batch(bool keep_only, Window* window) {
  uint64_t start = now_ns();
  for (size_t done = 0; done < batch_.size() && !replaced_;) {
    iovec local = {buffer_.data(), (batch_.size() - done) * kPageSize};
    iovec remote[kBatchPages];
    for (size_t i = done; i < batch_.size(); i++) {
      remote[i - done] = {reinterpret_cast<void*>(batch_[i].address), kPageSize};
    }
    ssize_t bytes = process_vm_readv(tracee_.pid(), &local, 1, remote, batch_.size() - done, 0);
    size_t got = bytes < 0 ? 0 : static_cast<size_t>(bytes) / kPageSize;
    auto event = tracee_.poll();
    replaced_ = event == Tracee::Event::kNewProgram || event == Tracee::Event::kEnded;
    for (size_t i = 0; i < got && !replaced_; i++) {
      const std::byte* now = buffer_.data() + i * kPageSize;
      if (!keep_only) compare_with_snapshot(batch_[done + i], now, window);
      snapshot_->keep(batch_[done + i].address, now);
    }
    done += got;
    if (done < batch_.size() && !replaced_) {  // unmapped meanwhile or not readable
      if (!keep_only) window->changes.vanished_pages++;
      done++;
    }
  }
  batch_.clear();
  window->comparing_seconds += seconds_since(start);
  return !replaced_;
}

void Tracker::compare_with_snapshot(const BatchPage& page, const std::byte* now, Window* window) {
  Snapshot::Page before = snapshot_->find(page.address);
  alignas(64) std::byte file_page[kPageSize];
  bool known = before.seen == Snapshot::Seen::kWithContent;
  if (before.seen == Snapshot::Seen::kNever && page.area->backing == process::Backing::kZeros) {
    before.content = kZeroPage;
    known = true;
  } else if (before.seen == Snapshot::Seen::kNever && page.area->backing == process::Backing::kFile) {
    known = files_->read(*page.area, page.address, file_page);
    before.content = file_page;
  }
  window->compared_pages++;
  if (!known) {
    bool first_seen = before.seen == Snapshot::Seen::kNever && page.area->backing == process::Backing::kSharedFile;
    if (!first_seen) window->changes.uncompared_pages++;
    return;
  }
  PageChange change = compare_page(before.content, now);
  window->changes.add(page.address, change);
  if (!page.known && change.bytes > 0) window->changes.written_pages++;
}

}  // namespace farside::track
