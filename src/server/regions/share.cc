#include "server/regions/share.h"

#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "ucx/exporter.h"

namespace farside::server {

int RegionShare::share(const ucx::Settings& settings, int memory_fd, wire::ByteRange slab, uint64_t max_slabs,
                       wire::ShareReply* out) {
  LockGuard hold(mutex_);
  if (!helper_) {
    if (int r = start(settings, memory_fd); r < 0) return r;
  }
  if (int r = take_replies(); r < 0) return r;
  if (auto it = shared_.find(slab.offset); it != shared_.end()) {
    *out = *it->second;
    return 0;
  }
  if (requested_.contains(slab.offset)) return -EAGAIN;
  if (shared_.size() + requested_.size() >= max_slabs) return -ENOSPC;
  return request(slab);
}

int RegionShare::start(const ucx::Settings& settings, int memory_fd) {
  if (now_ns() < not_before_ns_) return pause_reason_;
  auto helper = std::make_unique<ucx::Helper>();
  if (Status s = helper->start(settings, "export", "-", memory_fd); !s.ok()) {
    log(LogLevel::kWarning, "{}", s.text());
    return fail();
  }
  helper_ = std::move(helper);
  active_ = true;
  epoch_++;
  return 0;
}

int RegionShare::request(wire::ByteRange slab) {
  ucx::ExportRequest request = {slab.offset, slab.bytes};
  int r = helper_->send(&request, sizeof request);
  if (r == -EAGAIN) return r;
  if (r < 0) return fail();
  requested_[slab.offset] = true;
  return -EAGAIN;
}

int RegionShare::take_replies() {
  for (;;) {
    ucx::ExportReply reply;
    int n = helper_->receive(&reply, sizeof reply);
    if (n == -EAGAIN) return 0;
    auto requested = requested_.find(n == sizeof reply ? reply.offset : wire::kMaxRegionBytes);
    if (requested == requested_.end() || reply.failed) return fail();
    reply.share.epoch = epoch_;
    if (requested->second) shared_[reply.offset] = std::make_unique<wire::ShareReply>(reply.share);
    requested_.erase(requested);
  }
}

// The client goes on without it, and asks again.
int RegionShare::fail() {
  end();
  not_before_ns_ = now_ns() + kBackoffNs;
  return pause_reason_ = -EIO;
}

void RegionShare::unshare(uint64_t offset) {
  LockGuard hold(mutex_);
  auto requested = requested_.find(offset);
  if (requested != requested_.end()) requested->second = false;
  else if (shared_.erase(offset) == 0) return;
  ucx::ExportRequest request = {offset, 0};
  if (helper_->send(&request, sizeof request) < 0) fail();
}

RegionShare::Remains RegionShare::revoke() {
  LockGuard hold(mutex_);
  return end();
}

RegionShare::Remains RegionShare::end() {
  if (helper_) helper_->kill();
  not_before_ns_ = now_ns() + kPauseNs;
  pause_reason_ = -EAGAIN;
  shared_.clear();
  requested_.clear();
  active_ = false;
  return std::move(helper_);
}

uint64_t RegionShare::slabs() const {
  LockGuard hold(mutex_);
  return shared_.size() + requested_.size();
}

}  // namespace farside::server
