#include "cli/track/write_tracker.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <span>

#include "base/bits.h"
#include "base/clock.h"
#include "base/os.h"

namespace farside::cli::track {
namespace {

using Method = WriteTracker::Method;

// ---- The kernel's interface since Linux 6.7, which is not in Debian 12's headers ----
constexpr uint64_t kFeatureUnpopulated = 1U << 13, kFeatureAsync = 1U << 15;
constexpr uint64_t kIsWritten = 1U << 1, kIsFile = 1U << 2, kIsPresent = 1U << 3;
constexpr uint64_t kIsSwapped = 1U << 4, kIsZero = 1U << 5;
constexpr uint64_t kScanProtects = 1U << 0, kScanChecks = 1U << 1;

struct ScanRegion {
  uint64_t begin, end, categories;
};
struct ScanArguments {
  uint64_t size, flags, begin, end, walk_end, regions, region_count, max_pages;
  uint64_t inverted, all_of, any_of, returned;
};
static_assert(sizeof(ScanArguments) == 96);
constexpr unsigned long kScan = _IOWR('f', 16, ScanArguments);
constexpr size_t kRegions = 4096;

// ---- An entry of pagemap ----
constexpr uint64_t kEntrySoftDirty = uint64_t{1} << 55, kEntryFile = uint64_t{1} << 61;
constexpr uint64_t kEntrySwapped = uint64_t{1} << 62, kEntryPresent = uint64_t{1} << 63;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) os::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

Result<int> open_pagemap(pid_t pid) {
  int fd = os::open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return fd;
  return Status::error(-fd, "cannot read /proc/{}/pagemap: {}; run as the process's owner or as root", pid,
                       strerror(-fd));
}

void add_run(const PageRun& run, std::vector<PageRun>* runs) {
  if (!runs->empty() && runs->back().end == run.begin && runs->back().clean == run.clean &&
      runs->back().absent == run.absent)
    runs->back().end = run.end;
  else runs->push_back(run);
}

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

// Pages that are present or in swap; with `flag`, those whose entries have it.
Result<std::vector<PageRun>> present_pages(int pagemap, const Area& area, uint64_t flag = 0) {
  std::vector<PageRun> runs;
  std::vector<uint64_t> entries(kRegions);
  for (uint64_t page = area.begin; page < area.end;) {
    size_t wanted = std::min<uint64_t>(entries.size(), (area.end - page) / kPageSize) * sizeof(uint64_t);
    ssize_t got = pread(pagemap, entries.data(), wanted, static_cast<off_t>(page / kPageSize * sizeof(uint64_t)));
    if (got == 0) return runs;  // the process has ended
    if (got < 0) return Status::error(errno, "cannot read a process's pagemap: {}", strerror(errno));
    for (uint64_t entry : std::span(entries.data(), static_cast<size_t>(got) / sizeof(uint64_t))) {
      bool there = (entry & (kEntryPresent | kEntrySwapped)) != 0;
      bool clean = (entry & kEntryFile) != 0 && area.backing == Backing::kFile;
      if (there && (entry & flag) == flag) add_run({page, page + kPageSize, clean, false}, &runs);
      page += kPageSize;
    }
  }
  return runs;
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
int open_async(int uffd) {
  uffdio_api api = {UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP | kFeatureUnpopulated | kFeatureAsync, 0};
  return static_cast<int>(os::call(SYS_ioctl, uffd, UFFDIO_API, &api));
}

int protect_area(int uffd, uint64_t begin, uint64_t end) {
  return os::uffd_register(uffd, reinterpret_cast<void*>(begin), end - begin, UFFDIO_REGISTER_MODE_WP);
}

// Appends the pages of the area that are not write-protected, and protects them. A negative error if a part of the area
// is not registered.
long scan(int pagemap, const Area& area, std::vector<PageRun>* runs) {
  std::vector<ScanRegion> regions(kRegions);
  for (uint64_t at = area.begin; at < area.end;) {
    ScanArguments arguments = {};
    arguments.size = sizeof arguments;
    arguments.flags = kScanProtects | kScanChecks;
    arguments.begin = at;
    arguments.end = area.end;
    arguments.regions = reinterpret_cast<uint64_t>(regions.data());
    arguments.region_count = regions.size();
    arguments.all_of = kIsWritten;
    arguments.returned = kIsFile | kIsPresent | kIsSwapped | kIsZero;
    long found = os::call(SYS_ioctl, pagemap, kScan, &arguments);
    if (found < 0) return found;
    for (const ScanRegion& region : std::span(regions.data(), static_cast<size_t>(found))) {
      bool clean =
          (region.categories & kIsZero) != 0 || ((region.categories & kIsFile) != 0 && area.backing == Backing::kFile);
      bool absent = (region.categories & (kIsPresent | kIsSwapped)) == 0;
      add_run({region.begin, region.end, clean, absent}, runs);
    }
    if (arguments.walk_end <= at) break;
    at = arguments.walk_end;
  }
  return 0;
}

class ProtectingTracker : public WriteTracker {
 public:
  ProtectingTracker(Descriptor pagemap, Descriptor uffd) : pagemap_(std::move(pagemap)), uffd_(std::move(uffd)) {}

  Method method() const override { return Method::kWriteProtect; }

  Result<Written> take(const Area& area) override {
    Written written;
    long scanned = scan(pagemap_.get(), area, &written.pages);
    if (scanned == 0) return written;
    // Not registered: newly mapped since the last call, moved, or registered with another userfaultfd.
    int registered = protect_area(uffd_.get(), area.begin, area.end);
    if (registered == 0) scanned = scan(pagemap_.get(), area, &written.pages);
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
Result<int> take_userfaultfd(Tracee& tracee) {
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
  return static_cast<int>(ours);
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
  auto pagemap = open_pagemap(tracee.pid());
  if (!pagemap.ok()) return pagemap.status();
  Descriptor entries(*pagemap);
  auto uffd = take_userfaultfd(tracee);
  if (!uffd.ok()) return uffd.status();
  Descriptor faults(*uffd);
  int opened = open_async(faults.get());
  if (opened < 0) {
    return Status::error(-opened, "this kernel has no asynchronous write protection; Linux 6.7 and newer have it");
  }
  std::unique_ptr<WriteTracker> tracker(new ProtectingTracker(std::move(entries), std::move(faults)));
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
      auto pages = present_pages(pagemap_.get(), area, known ? kEntrySoftDirty : 0);
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
    auto pages = present_pages(pagemap_.get(), area);
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
  if (method == Method::kSoftDirty && !keeps_soft_dirty()) {
    return Status::error(ENOTSUP, "this kernel maintains no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)");
  }
  auto pagemap = open_pagemap(tracee.pid());
  if (!pagemap.ok()) return pagemap.status();
  Descriptor entries(*pagemap);
  std::unique_ptr<WriteTracker> tracker;
  if (method == Method::kSoftDirty) tracker.reset(new SoftDirtyTracker(std::move(entries), tracee));
  else tracker.reset(new ComparingTracker(std::move(entries), tracee.pid()));
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

double write_fault_ns() {
  constexpr size_t kPages = 1024;
  auto* pages = static_cast<volatile char*>(os::map_near(kPages * kPageSize));
  Descriptor uffd(static_cast<int>(os::call(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  auto pagemap = open_pagemap(getpid());
  if (!pages || !uffd.valid() || !pagemap.ok() || open_async(uffd.get()) < 0) return 0;
  Descriptor entries(*pagemap);
  auto write_all = [pages] {
    uint64_t start = now_ns();
    for (size_t i = 0; i < kPages; i++) pages[i * kPageSize] = 1;
    return static_cast<double>(now_ns() - start);
  };
  auto begin = reinterpret_cast<uint64_t>(pages);
  Area area;
  area.begin = begin;
  area.end = begin + kPages * kPageSize;
  madvise(const_cast<char*>(pages), kPages * kPageSize, MADV_NOHUGEPAGE);
  write_all();
  double plain = write_all();
  std::vector<PageRun> written;
  bool works = protect_area(uffd.get(), area.begin, area.end) == 0 && scan(entries.get(), area, &written) == 0;
  double faulting = works ? write_all() : 0;
  if (works) works = written.size() == 1 && written[0].begin == area.begin && written[0].end == area.end;
  os::unmap(const_cast<char*>(pages), kPages * kPageSize);
  return works ? std::max(faulting - plain, 1.0) / kPages : 0;
}

bool keeps_soft_dirty() {
  auto* page = static_cast<volatile char*>(os::map_near(kPageSize));
  auto pagemap = open_pagemap(getpid());
  if (!page || !pagemap.ok()) return false;
  Descriptor entries(*pagemap);
  *page = 1;
  uint64_t entry = 0;
  off_t at = static_cast<off_t>(reinterpret_cast<uint64_t>(page) / kPageSize * sizeof entry);
  bool kept = pread(entries.get(), &entry, sizeof entry, at) == sizeof entry && (entry & kEntrySoftDirty) != 0;
  os::unmap(const_cast<char*>(page), kPageSize);
  return kept;
}

}  // namespace farside::cli::track
