#include "pager/shared/sample_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/bits.h"
#include "base/inherited_fds.h"
#include "base/os.h"

namespace farside::pager {

SampleLog::~SampleLog() { close(); }

void SampleLog::close() {
  SampleHeader* header = header_.exchange(nullptr);
  if (header) os::unmap(header, kMaxBytes);
  if (fd_ >= 0) close_inherited(fd_);
  fd_ = -1;
  room_.store(0);
}

// A process that executes another program keeps its number, so the time is part of the name.
Status SampleLog::open(const char* prefix) {
  close();
  char path[1200];
  auto end = fmt::format_to_n(path, sizeof path - 1, "{}.{}.{}", prefix, os::getpid(), now_ns());
  *end.out = 0;
  long fd = os::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Status::error(static_cast<int>(-fd), "cannot create the samples' file {} (error {})", path, -fd);
  fd_ = os::move_fd_high(static_cast<int>(fd));
  if (int error = os::fallocate(fd_, 0, 0, kSampleEventsAt))
    return Status::error(-error, "no room for the samples' file {} (error {})", path, -error);
  long at = os::mmap(nullptr, kMaxBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at < 0) return Status::error(static_cast<int>(-at), "cannot map the samples' file {} (error {})", path, -at);
  auto* header = reinterpret_cast<SampleHeader*>(at);
  header->pid = static_cast<uint32_t>(os::getpid());
  header->ticks_per_us = ticks_per_us();
  header->magic = SampleHeader::kMagic;
  header_.store(header);
  return {};
}

bool SampleLog::reserve(uint64_t events) {
  constexpr uint64_t kStep = 64 << 10;  // events: 1 MiB
  SampleHeader* header = header_.load();
  uint64_t needed = align_up(header->events.load(std::memory_order_relaxed) + events, kStep), room = room_.load();
  if (needed <= room) return true;
  uint64_t bytes = (needed - room) * sizeof(SampleEvent);
  auto at = static_cast<off_t>(kSampleEventsAt + room * sizeof(SampleEvent));
  if (needed > kMaxEvents || os::fallocate(fd_, 0, at, static_cast<off_t>(bytes)) != 0) {
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
  events[at].ticks = ticks();
  events[at].value = value;
  events[at].kind.store(kind, std::memory_order_release);
}

}  // namespace farside::pager
