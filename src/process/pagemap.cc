#include "process/pagemap.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/bits.h"

namespace farside::process {
namespace {

// ---- An entry of pagemap ----
constexpr uint64_t kSoftDirty = uint64_t{1} << 55, kFile = uint64_t{1} << 61;
constexpr uint64_t kSwapped = uint64_t{1} << 62, kPresent = uint64_t{1} << 63;
constexpr size_t kEntries = 4096;  // read at a time

off_t entry_of(uint64_t address) { return static_cast<off_t>(address / kPageSize * sizeof(uint64_t)); }

}  // namespace

void add_run(const PageRun& run, std::vector<PageRun>* runs) {
  bool continues = !runs->empty() && runs->back().end == run.begin && runs->back().clean == run.clean &&
                   runs->back().absent == run.absent;
  if (continues) runs->back().end = run.end;
  else runs->push_back(run);
}

Result<Descriptor> open_pagemap(pid_t pid) {
  int fd = os::open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return Descriptor(fd);
  return Status::error(-fd, "cannot read /proc/{}/pagemap: {}; run as the process's owner or as root", pid,
                       strerror(-fd));
}

Result<std::vector<PageRun>> present_pages(const Descriptor& pagemap, const Area& area, bool only_soft_dirty) {
  std::vector<PageRun> runs;
  std::vector<uint64_t> entries(kEntries);
  for (uint64_t page = area.begin; page < area.end;) {
    size_t wanted = std::min<uint64_t>(entries.size(), (area.end - page) / kPageSize) * sizeof(uint64_t);
    ssize_t got = pread(pagemap.get(), entries.data(), wanted, entry_of(page));
    if (got == 0) return runs;  // the process has ended
    if (got < 0) return Status::error(errno, "cannot read a process's pagemap: {}", strerror(errno));
    for (uint64_t entry : std::span(entries.data(), static_cast<size_t>(got) / sizeof(uint64_t))) {
      bool there = (entry & (kPresent | kSwapped)) != 0;
      bool clean = (entry & kFile) != 0 && area.backing == Backing::kFile;
      bool asked_for = !only_soft_dirty || (entry & kSoftDirty) != 0;
      if (there && asked_for) add_run({page, page + kPageSize, clean, false}, &runs);
      page += kPageSize;
    }
  }
  return runs;
}

bool keeps_soft_dirty() {
  auto* page = static_cast<volatile char*>(os::map_near(kPageSize));
  auto pagemap = open_pagemap(getpid());
  if (!page || !pagemap.ok()) return false;
  *page = 1;
  uint64_t entry = 0;
  off_t at = entry_of(reinterpret_cast<uint64_t>(page));
  bool kept = pread(pagemap->get(), &entry, sizeof entry, at) == sizeof entry && (entry & kSoftDirty) != 0;
  os::unmap(const_cast<char*>(page), kPageSize);
  return kept;
}

}  // namespace farside::process
