// The part of FetchPath that reads parts of pages. These requests do not change page states, since the pages stay far.
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "fiber/wait.h"
#include "pager/fault/fetch_path.h"

namespace farside::pager {

void FetchPath::read_subpages(std::span<SubpageRead> reads, bool may_suspend) {
  ThreadSlot& t = threads_.current();
  FARSIDE_CHECK(reads.size() <= SubpageRead::kMaxPerRequest);
  transport::ByteRange ranges[SubpageRead::kMaxPerRequest];
  SubpageReadGroup group;
  const std::byte* in_place;
  {
    InGate inside(gate_, t);
    ReadQueueLock lock(t.reads);
    in_place = t.reads.channel(store_).mapping().base;
    size_t count = start_subpage_reads(t, reads, ranges);
    if (count == 0) return;
    group.ranges = {ranges, count};
    t.reads.queued(group);
    // The read of a fiber is sent when its worker polls, together with those of other fibers.
    bool gathers = may_suspend && fibers::polls_soon();
    if (!gathers) send_subpage_reads(t);
    if (!may_suspend) {
      uint64_t start = ticks();
      while (!group.done.load(std::memory_order_relaxed)) finish_subpage_reads(t, true);
      t.counters.add(Counter::kFetchTicks, ticks() - start);
    }
  }
  if (may_suspend) {
    fibers::wait_until([](void* g) { return static_cast<SubpageReadGroup*>(g)->done.load(std::memory_order_acquire); },
                       &group);
  }
  if (!in_place) return;
  for (SubpageRead& r : reads) {
    if (r.read) memcpy(r.to, in_place + (r.address - reinterpret_cast<uint64_t>(space_.base())), r.bytes);
  }
}

// Copies at once what can be read in place, and makes a list of the other reads. Returns the length of the list. The
// read queue is locked, here and below.
size_t FetchPath::start_subpage_reads(ThreadSlot& t, std::span<SubpageRead> reads, transport::ByteRange* ranges) {
  transport::Mapping mapping = t.reads.channel(store_).mapping();
  size_t count = 0;
  for (SubpageRead& r : reads) {
    PageIndex page = table_.index_of(r.address);
    r.read = table_[page].load().is(PageState::kFar);
    if (!r.read) continue;
    uint64_t far = PageTable::far_of(page) + r.address % kPageSize;
    t.counters.add(Counter::kSubpageReads);
    t.counters.add(Counter::kBytesFetched, r.bytes);
    if (mapping.immediate) memcpy(r.to, mapping.base + far, r.bytes);
    else ranges[count++] = {far, r.bytes, mapping.base ? nullptr : r.to};
  }
  return count;
}

// Sends all queued reads.
void FetchPath::send_subpage_reads(ThreadSlot& t) {
  FARSIDE_DCHECK(t.reads.is_locked());
  SubpageQueue& queue = t.reads.subpage_reads();
  transport::Channel& channel = t.reads.channel(store_);
  while (queue.has_queued()) {
    int error = queue.is_full() ? -EAGAIN : queue.send(channel);
    if (error == 0) continue;
    if (error != -EAGAIN) die_of_lost_memory(store_, error);
    if (!finish_subpage_reads(t, true)) finish_oldest(t);  // too many requests in flight
  }
}

// Completes requests that have arrived; with `wait`, at least the oldest. Then sends queued reads.
bool FetchPath::finish_subpage_reads(ThreadSlot& owner, bool wait) {
  FARSIDE_DCHECK(owner.reads.is_locked());
  SubpageQueue& queue = owner.reads.subpage_reads();
  if (queue.empty()) return false;
  transport::Channel& channel = owner.reads.channel(store_);
  bool any = false;
  for (;;) {
    size_t done = 0;
    int r = queue.finish_oldest(channel, wait && !any, kTransportTimeoutNs, &done);
    if (r < 0) die_of_lost_memory(store_, r);
    if (r == 0) break;
    owner.reads.subpage_reads_done(done);
    any = true;
  }
  while (queue.should_send()) {
    int error = queue.send(channel);
    if (error == -EAGAIN) break;
    if (error) die_of_lost_memory(store_, error);
  }
  return any;
}

}  // namespace farside::pager
