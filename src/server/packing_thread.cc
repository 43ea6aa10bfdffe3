#include "server/packing_thread.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/clock.h"
#include "base/os.h"

namespace farside::server {

PackingThread::~PackingThread() {
  stopping_ = true;
  thread_.join();
}

void PackingThread::run() {
  constexpr int kNice = 10;
  os::name_thread("farside-pack");
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
  while (!stopping_) {
    uint64_t next = now_ns() + epoch_ns_;
    pool_->begin_epoch();
    pack_until(next);
    for (uint64_t now; !stopping_ && (now = now_ns()) < next;) os::nanosleep_ns(std::min(next - now, epoch_ns_ / 10));
  }
}

// Each piece of work is followed by a pause of the same length.
void PackingThread::pack_until(uint64_t time) {
  while (!stopping_) {
    uint64_t begin = now_ns();
    if (begin >= time || !pool_->pack_some()) return;
    os::nanosleep_ns(now_ns() - begin);
  }
}

}  // namespace farside::server
