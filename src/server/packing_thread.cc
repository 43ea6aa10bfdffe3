#include "server/packing_thread.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

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
    uint64_t now = now_ns();
    if (now >= next_epoch_) {
      pool_->advance_epochs();
      next_epoch_ = now + epoch_ns_;
    }
    if (passing_ || now >= next_pass_) work();
    else sleep();
  }
}

// Each piece of work is followed by a pause of the same length, unless others wait for RAM.
void PackingThread::work() {
  constexpr uint64_t kLookShare = 50;
  uint64_t begin = now_ns();
  if (!std::exchange(passing_, true)) pool_->begin_pass();
  Packer::Progress step = pool_->pack_some();
  uint64_t end = now_ns();
  if (!step.packed) looked_ns_ += end - begin;
  bool hurries = pool_->overflow() && pool_->overflow()->is_in_a_hurry();
  if (step.more) {
    if (!hurries) os::nanosleep_ns(end - begin);
    return;
  }
  passing_ = false;
  uint64_t pause = std::max(epoch_ns_, kLookShare * std::exchange(looked_ns_, 0));
  next_pass_ = end + (hurries ? 0 : pause);
}

// Short enough that a stop does not wait long.
void PackingThread::sleep() {
  constexpr uint64_t kLongestNs = 25'000'000;
  uint64_t now = now_ns(), next = std::min(next_epoch_, next_pass_);
  os::nanosleep_ns(std::min(kLongestNs, next - std::min(next, now)));
}

}  // namespace farside::server
