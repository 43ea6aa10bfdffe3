#include "server/calls.h"

#include <algorithm>
#include <cstring>

namespace farside::server {
namespace {

// By which functions may exceed the reservation of their region until that is noticed.
constexpr uint64_t kReservationSlack = wire::kSlabBytes;
constexpr uint64_t kMaxCounted = 1'000'000'000;  // calls of a process, in statistics

}  // namespace

Calls::Calls(CallService& service, Region& region, const wire::CallOpen& open, int connection_fd,
             std::function<bool()> is_gone)
    : service_(service), region_(region), open_(open), connection_fd_(connection_fd), is_gone_(std::move(is_gone)) {
  service_.enter({region_.name().id, open_.process}, this);
}

Calls::~Calls() {
  sandbox_.reset();
  service_.leave({region_.name().id, open_.process}, this);
}

int Calls::add_code(const wire::CallCodeRequest& request, wire::CallCodeReply* reply) {
  wire::Digest hash;
  memcpy(hash.data(), request.head.hash, sizeof hash);
  if (request.head.bytes > service_.config().limits.code_bytes) return -E2BIG;
  *reply = {};
  auto known = std::find_if(objects_.begin(), objects_.end(), [&](const auto& o) { return o.first == hash; });
  std::shared_ptr<sandbox::Code> added;
  if (known == objects_.end()) {
    if (objects_.size() == wire::kMaxCallObjects) return -ENOSPC;
    added = service_.codes.find(hash);
    if (!added && request.part.empty()) return 0;
    int r = added ? 1 : upload_.add(request);
    if (r <= 0) return r;
    if (!added) service_.codes.add(hash, added = upload_.take());
    objects_.emplace_back(hash, added);
    known = objects_.end() - 1;
    sandbox_.reset();  // the next call starts a process that has all of them
  }
  *reply = {1, static_cast<uint32_t>(known - objects_.begin())};
  return 0;
}

Status Calls::prepare(const wire::CallPayload& call) {
  if (Status s = start(); !s.ok()) return s;
  int r = region_.admit_call(call.ranges, call.head.range_count);
  if (r == 0) return {};
  return Status::error(-r, "the region has snapshots, of forked processes: functions cannot be called for now");
}

Status Calls::start() {
  if (sandbox_) return {};
  sandbox::Setup setup;
  setup.program = service_.config().host_program;
  setup.region_fd = region_.memory_fd();
  setup.connection_fd = connection_fd_;
  setup.base = open_.base;
  setup.limits = service_.config().limits;
  for (const auto& [hash, code] : objects_) setup.objects.push_back(code->fd());
  auto started = sandbox::Sandbox::start(setup, [this] { return is_abandoned(); });
  if (!started.ok()) return started.status();
  sandbox_ = std::move(*started);
  return {};
}

void Calls::relay(wire::Bytes frame, std::byte* reply) {
  if (!sandbox_->call(
          frame, [this] { return is_abandoned(); }, reply))
    sandbox_.reset();
}

sandbox::Sandbox::Served Calls::serve(std::vector<std::byte>* received, uint64_t* request, std::byte* reply,
                                      uint64_t* executed) {
  uint64_t before = sandbox_->calls(), noted = before;
  auto watch = [&] {
    if (sandbox_->calls() != noted) region_.note_stored_by_calls();
    noted = sandbox_->calls();
    return is_abandoned();
  };
  sandbox::Sandbox::Served result = sandbox_->serve(received, watch, request, reply);
  region_.note_stored_by_calls();
  // A function could make up any number.
  *executed = std::min(sandbox_->calls() - before, kMaxCounted);
  if (result != sandbox::Sandbox::Served::kGivenBack) sandbox_.reset();
  return result;
}

bool Calls::is_abandoned() { return ends_ || service_.is_stopping() || is_gone_() || exceeds_reservation(); }

// A function that writes pages which the client has not reserved, on purpose: the ranges of a call lie within what the
// client has committed.
bool Calls::exceeds_reservation() const {
  return region_.stored_bytes() > region_.reserved_bytes() + kReservationSlack;
}

void CallService::enter(Process process, Calls* calls) {
  LockGuard hold(mutex_);
  while (current_.contains(process)) {
    current_[process]->request_end();
    left_.wait(mutex_);
  }
  current_[process] = calls;
}

void CallService::leave(Process process, Calls* calls) {
  LockGuard hold(mutex_);
  auto found = current_.find(process);
  if (found != current_.end() && found->second == calls) current_.erase(found);
  left_.notify_all();
}

}  // namespace farside::server
