#include "pager/thread/subpage_queue.h"
#include "base/log.h"

namespace farside::pager {

int SubpageQueue::send(transport::Channel& channel) {
  FARSIDE_DCHECK(has_queued() && !is_full());
  transport::ByteRange ranges[kMaxRanges];
  size_t count = 0;
  SubpageReadGroup* last = nullptr;
  for (SubpageReadGroup* r = first_; r && count + r->ranges.size() <= kMaxRanges; r = r->next) {
    for (const transport::ByteRange& s : r->ranges) ranges[count++] = s;
    last = r;
  }
  FARSIDE_CHECK(count > 0 && count <= queued_);
  Request& request = requests_[in_flight_];
  if (int error = channel.submit_read({ranges, count}, &request.token)) return error;
  request.first = first_;
  request.last = last;
  first_ = last->next;
  last->next = nullptr;
  queued_ -= count;
  in_flight_++;
  return 0;
}

int SubpageQueue::finish_oldest(transport::Channel& channel, bool wait, uint64_t timeout_ns, size_t* reads_done) {
  *reads_done = 0;
  if (in_flight_ == 0) return 0;
  int r = wait ? channel.wait(requests_[0].token, timeout_ns) : channel.poll(requests_[0].token);
  if (r < 0 || (r == 0 && !wait)) return r;
  for (SubpageReadGroup *read = requests_[0].first, *next; read; read = next) {
    next = read->next;  // its reader may return at once, so it is not accessed after done is set
    read->done.store(true, std::memory_order_release);
    ++*reads_done;
  }
  in_flight_--;
  for (size_t i = 0; i < in_flight_; i++) requests_[i] = requests_[i + 1];
  return 1;
}

}  // namespace farside::pager
