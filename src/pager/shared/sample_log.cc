#include "pager/shared/sample_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/bits.h"
#include "base/inherited_fds.h"
#include "base/os.h"

namespace farside::pager {

SampleLog::~SampleLog() {
  close();
  if (place_) os::unmap(place_, kMaxBytes);
}

// A fault may be adding an event meanwhile, or after it: what it writes then goes nowhere, or, if the next log was
// opened meanwhile, into that one, where it may replace an event. One event changes no curve.
void SampleLog::close() {
  constexpr int kNowhere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  header_.store(nullptr);
  room_.store(0);
  if (fd_.load() < 0) return;
  os::mmap(place_, kMaxBytes, PROT_READ | PROT_WRITE, kNowhere, -1, 0);
  close_inherited(fd_.exchange(-1));
}

// A process that executes another program keeps its number, so the time is part of the name.
int SampleLog::create(const char* prefix) const {
  if (prefix[0] == 0) return os::memfd_create(kSampleFileName, MFD_CLOEXEC);
  char path[1200];
  auto end = fmt::format_to_n(path, sizeof path - 1, "{}.{}.{}", prefix, os::getpid(), now_ns());
  *end.out = 0;
  return static_cast<int>(os::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

Status SampleLog::open(const char* prefix) {
  close();
  if (!place_) place_ = os::map_near(kMaxBytes);
  if (!place_) return Status::error(ENOMEM, "no room for the samples' file: no addresses are left; raise 'ulimit -v'");
  int fd = create(prefix);
  if (fd < 0) return Status::error(-fd, "cannot create the samples' file {} (error {})", prefix, -fd);
  fd_.store(os::move_fd_high(fd));
  if (int error = extend(0, kSampleEventsAt))
    return Status::error(-error, "no room for the samples' file {} (error {})", prefix, -error);
  threshold_.store(kSampleAll);
  auto* header = static_cast<SampleHeader*>(place_);
  header->pid = static_cast<uint32_t>(os::getpid());
  header->ticks_per_us = ticks_per_us();
  header->magic = SampleHeader::kMagic;
  header_.store(header);
  return {};
}

// Returns 0 or -errno.
int SampleLog::extend(uint64_t from, uint64_t bytes) {
  int fd = fd_.load();
  auto at = static_cast<off_t>(from);
  if (int error = os::fallocate(fd, 0, at, static_cast<off_t>(bytes))) return error;
  void* place = static_cast<std::byte*>(place_) + from;
  long mapped = os::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at);
  return os::is_error(mapped) ? static_cast<int>(mapped) : 0;
}

bool SampleLog::reserve(uint64_t events) {
  constexpr uint64_t kStep = 64 << 10;  // events: 1 MiB
  SampleHeader* header = header_.load();
  uint64_t needed = align_up(header->events.load(std::memory_order_relaxed) + events, kStep), room = room_.load();
  if (needed <= room) return true;
  uint64_t bytes = (needed - room) * sizeof(SampleEvent);
  if (needed > kMaxEvents || extend(kSampleEventsAt + room * sizeof(SampleEvent), bytes) != 0) {
    header->is_full = 1;
    return false;
  }
  room_.store(needed);
  return true;
}

// What finds no room is lost. Without room the next round does not begin.
void SampleLog::add(SampleHeader& header, SampleKind kind, uint32_t value) {
  uint64_t at = header.events.fetch_add(1, std::memory_order_relaxed);
  if (at >= room_.load(std::memory_order_relaxed)) return;
  auto* events = reinterpret_cast<SampleEvent*>(reinterpret_cast<std::byte*>(&header) + kSampleEventsAt);
  events[at].ticks.store(ticks(), std::memory_order_relaxed);
  events[at].value.store(value, std::memory_order_relaxed);
  events[at].kind.store(kind, std::memory_order_release);
}

}  // namespace farside::pager
