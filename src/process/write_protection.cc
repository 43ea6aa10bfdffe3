#include "process/write_protection.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "base/bits.h"
#include "base/clock.h"
#include "base/os.h"

namespace farside::process {
namespace {

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
constexpr size_t kRegions = 4096;  // reported at a time

}  // namespace

int use_asynchronously(const Descriptor& uffd) {
  uffdio_api api = {UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP | kFeatureUnpopulated | kFeatureAsync, 0};
  return static_cast<int>(os::call(SYS_ioctl, uffd.get(), UFFDIO_API, &api));
}

int protect(const Descriptor& uffd, uint64_t begin, uint64_t end) {
  return os::uffd_register(uffd.get(), reinterpret_cast<void*>(begin), end - begin, UFFDIO_REGISTER_MODE_WP);
}

long take_written(const Descriptor& pagemap, const Area& area, std::vector<PageRun>* runs) {
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
    long found = os::call(SYS_ioctl, pagemap.get(), kScan, &arguments);
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

double write_fault_ns() {
  constexpr size_t kPages = 1024;
  auto* pages = static_cast<volatile char*>(os::map_near(kPages * kPageSize));
  Descriptor uffd(static_cast<int>(os::call(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  auto pagemap = open_pagemap(getpid());
  if (!pages || !uffd.valid() || !pagemap.ok() || use_asynchronously(uffd) < 0) return 0;
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
  bool works = protect(uffd, area.begin, area.end) == 0 && take_written(*pagemap, area, &written) == 0;
  double faulting = works ? write_all() : 0;
  if (works) works = written.size() == 1 && written[0].begin == area.begin && written[0].end == area.end;
  os::unmap(const_cast<char*>(pages), kPages * kPageSize);
  return works ? std::max(faulting - plain, 1.0) / kPages : 0;
}

}  // namespace farside::process
