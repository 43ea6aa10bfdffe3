#include "tools/track/write_tracker.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "base/os.h"
#include "process/write_protection.h"

namespace farside::track {
namespace {

using process::Descriptor;
using Method = WriteTracker::Method;

// Sorts the runs and removes overlaps.
void sort_runs(std::vector<PageRun>* runs) {
  std::sort(runs->begin(), runs->end(), [](const PageRun& a, const PageRun& b) { return a.begin < b.begin; });
  uint64_t done = 0;
  for (PageRun& run : *runs) {
    run.begin = std::max(run.begin, done);
    done = std::max(done, run.end);
  }
  std::erase_if(*runs, [](const PageRun& run) { return run.begin >= run.end; });
}

// The begins of areas that a userfaultfd serves, by the flags in smaps.
std::set<uint64_t> areas_with_handlers(pid_t pid) {
  std::set<uint64_t> begins;
  std::ifstream file(fmt::format("/proc/{}/smaps", pid));
  uint64_t begin = 0;
  for (std::string line; std::getline(file, line);) {
    bool head = line.find('-') < line.find(' ');
    if (head) begin = strtoull(line.c_str(), nullptr, 16);
    if (!line.starts_with("VmFlags:")) continue;
    for (const char* flag : {" um", " uw", " ui"}) {
      if (line.find(flag) != std::string::npos) begins.insert(begin);
    }
  }
  return begins;
}

// ---- Asynchronous write protection ----
class ProtectingTracker : public WriteTracker {
 public:
  ProtectingTracker(Descriptor pagemap, Descriptor uffd) : pagemap_(std::move(pagemap)), uffd_(std::move(uffd)) {}

  Method method() const override { return Method::kWriteProtect; }

  Result<Written> take(const Area& area) override {
    Written written;
    long scanned = process::take_written(pagemap_, area, &written.pages);
    if (scanned == 0) return written;
    // Not registered: newly mapped since the last call, moved, or registered with another userfaultfd.
    int registered = process::protect(uffd_, area.begin, area.end);
    if (registered == 0) scanned = process::take_written(pagemap_, area, &written.pages);
    if (scanned == 0) {
      sort_runs(&written.pages);  // the first scan may have covered a part of the area
      written.fresh = true;
      return written;
    }
    written.pages.clear();
    written.left_out = registered != -ESRCH;  // ESRCH: the process has ended
    return written;
  }

 private:
  Descriptor pagemap_, uffd_;
};

// The process opens a userfaultfd, which is then taken over by pidfd_getfd: registering its memory needs no further
// calls in the process.
Result<Descriptor> take_userfaultfd(Tracee& tracee) {
  // UFFD_USER_MODE_ONLY, because every user may open that form, and the kernel resolves all faults itself.
  long theirs = tracee.call(SYS_userfaultfd, {static_cast<uint64_t>(O_CLOEXEC | UFFD_USER_MODE_ONLY), 0, 0});
  if (theirs < 0) {
    return Status::error(static_cast<int>(-theirs), "the process cannot open a userfaultfd: {}",
                         strerror(static_cast<int>(-theirs)));
  }
  int pidfd = os::pidfd_open(tracee.pid());
  long ours = pidfd < 0 ? pidfd : os::call(SYS_pidfd_getfd, pidfd, theirs, 0);
  if (pidfd >= 0) os::close(pidfd);
  tracee.call(SYS_close, {static_cast<uint64_t>(theirs), 0, 0});
  if (ours < 0) {
    return Status::error(static_cast<int>(-ours), "cannot take over a userfaultfd: {}",
                         strerror(static_cast<int>(-ours)));
  }
  return Descriptor(static_cast<int>(ours));
}

bool has_seccomp_filter(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Seccomp:")) return line.back() != '0';
  }
  return false;
}

Result<std::unique_ptr<WriteTracker>> make_protecting(Tracee& tracee) {
  if (has_seccomp_filter(tracee.pid())) {
    return Status::error(EPERM, "the process has a seccomp filter, which could kill it for opening a userfaultfd");
  }
  auto pagemap = process::open_pagemap(tracee.pid());
  if (!pagemap.ok()) return pagemap.status();
  auto uffd = take_userfaultfd(tracee);
  if (!uffd.ok()) return uffd.status();
  int opened = process::use_asynchronously(*uffd);
  if (opened < 0) {
    return Status::error(-opened, "this kernel has no asynchronous write protection; Linux 6.7 and newer have it");
  }
  std::unique_ptr<WriteTracker> tracker(new ProtectingTracker(std::move(*pagemap), std::move(*uffd)));
  return tracker;
}

// ---- Soft-dirty bits ----
class SoftDirtyTracker : public WriteTracker {
 public:
  SoftDirtyTracker(Descriptor pagemap, Tracee& tracee) : pagemap_(std::move(pagemap)), tracee_(tracee) {}

  Method method() const override { return Method::kSoftDirty; }

  // Stops all threads: a write between reading and clearing the bits would be lost.
  Status begin_window(const std::vector<Area>& areas) override {
    AllStopped stopped(tracee_);
    taken_.clear();
    left_out_ = areas_with_handlers(tracee_.pid());
    for (const Area& area : areas) {
      if (left_out_.contains(area.begin)) continue;
      bool known = seen_.contains(area.begin);
      auto pages = process::present_pages(pagemap_, area, known);
      if (!pages.ok()) return pages.status();
      taken_[area.begin] = std::move(*pages);
    }
    seen_.clear();
    for (const Area& area : areas) seen_[area.begin] = area.end;
    std::ofstream clear(fmt::format("/proc/{}/clear_refs", tracee_.pid()));
    clear << "4" << std::flush;
    return {};
  }

  Result<Written> take(const Area& area) override {
    Written written;
    written.pages = std::move(taken_[area.begin]);
    written.left_out = left_out_.contains(area.begin);
    return written;
  }

 private:
  Descriptor pagemap_;
  Tracee& tracee_;
  std::map<uint64_t, uint64_t> seen_;
  std::map<uint64_t, std::vector<PageRun>> taken_;
  std::set<uint64_t> left_out_;
};

// ---- No tracking ----
class ComparingTracker : public WriteTracker {
 public:
  ComparingTracker(Descriptor pagemap, pid_t pid) : pagemap_(std::move(pagemap)), pid_(pid) {}

  Method method() const override { return Method::kCompare; }

  Status begin_window(const std::vector<Area>&) override {
    left_out_ = areas_with_handlers(pid_);
    return {};
  }

  Result<Written> take(const Area& area) override {
    if (left_out_.contains(area.begin)) return Written{{}, false, false, true};
    auto pages = process::present_pages(pagemap_, area);
    if (!pages.ok()) return pages.status();
    return Written{std::move(*pages), false, false, false};
  }

 private:
  Descriptor pagemap_;
  pid_t pid_;
  std::set<uint64_t> left_out_;
};

Result<std::unique_ptr<WriteTracker>> make(Tracee& tracee, Method method) {
  if (method == Method::kWriteProtect) return make_protecting(tracee);
  if (method == Method::kSoftDirty && !process::keeps_soft_dirty()) {
    return Status::error(ENOTSUP, "this kernel maintains no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)");
  }
  auto pagemap = process::open_pagemap(tracee.pid());
  if (!pagemap.ok()) return pagemap.status();
  std::unique_ptr<WriteTracker> tracker;
  if (method == Method::kSoftDirty) tracker.reset(new SoftDirtyTracker(std::move(*pagemap), tracee));
  else tracker.reset(new ComparingTracker(std::move(*pagemap), tracee.pid()));
  return tracker;
}

}  // namespace

const char* WriteTracker::name_of(Method method) {
  constexpr const char* kNames[] = {"write-protect", "soft-dirty", "compare"};
  return kNames[static_cast<int>(method)];
}

Result<std::unique_ptr<WriteTracker>> make_write_tracker(Tracee& tracee, const Method* wanted, std::string* why_not) {
  why_not->clear();
  if (wanted) return make(tracee, *wanted);
  for (Method method : {Method::kWriteProtect, Method::kSoftDirty}) {
    auto tracker = make(tracee, method);
    if (tracker.ok()) return tracker;
    *why_not += std::string(why_not->empty() ? "" : "; ") + tracker.status().text();
  }
  return make(tracee, Method::kCompare);
}

}  // namespace farside::track
