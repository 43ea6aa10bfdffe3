#include "offload/call_costs.h"

#include <algorithm>
#include <cmath>

namespace farside::offload {
namespace {

constexpr double kComputeByteNs = 0.5, kFetchByteNs = 1, kNever = 1e9;  // before they are measured
constexpr double kShortCalls = 4;    // a call that takes fewer round trips touches few bytes
constexpr double kNearShare = 0.05;  // with less that is far, the time is that of the computation
constexpr uint32_t kTrialGrowth = 8;
constexpr double kCloseLoss = 1;     // below it one slow measurement may have decided
constexpr double kTrialCost = 0.02;  // of the time of all calls, where both ways are close
constexpr uint32_t kMinInterval = 8;
// The first call of a trial is slower than the others: what it needs has been idle. Its time is not learned.
constexpr uint32_t kTrialCalls = 3;
constexpr double kMaxGrowth = 2;      // of an expected time by one measurement: it may have been interrupted
constexpr double kMinWeight = 0.125;  // of a measurement

}  // namespace

// Ranges of similar sizes count as one, since a function need not use all of its ranges.
uint64_t CallCosts::key_of(const Expected& call) {
  auto size_class = static_cast<uint64_t>(std::ilogb(std::max(call.bytes, 1.0)));
  return (call.function * 64 + size_class + 1) * 0x9e3779b97f4a7c15;
}

// Two functions may have the same place: then each begins anew.
CallCosts::Estimate& CallCosts::estimate_of(const Expected& call) {
  uint64_t key = key_of(call);
  Estimate& e = estimates_[key >> 56];
  if (e.key == key) return e;
  e = Estimate();
  e.key = key;
  return e;
}

void CallCosts::Term::learn(double measured) {
  count++;
  value += (measured - value) * std::max(kMinWeight, 1.0 / count);
}

double CallCosts::near_byte_ns(const Estimate& e) {
  if (e.local_byte_ns.is_known()) return e.local_byte_ns.value;
  if (e.fetch_byte_ns.is_known()) return 0;  // the computation is part of what was measured
  return std::min(e.server_byte_ns.value_or(kComputeByteNs), kComputeByteNs);
}

double CallCosts::local_ns(const Estimate& e, const Expected& call) const {
  return call.bytes * near_byte_ns(e) + call.far * e.fetch_byte_ns.value_or(kFetchByteNs);
}

double CallCosts::server_ns(const Estimate& e, const Expected& call) const {
  return call_ns_ + call.bytes * e.server_byte_ns.value_or(near_byte_ns(e)) + call.dirty * write_byte_ns_;
}

bool CallCosts::prefers_server(const Expected& call) {
  LockGuard hold(lock_);
  Estimate& e = estimate_of(call);
  double server = server_ns(e, call), local = local_ns(e, call);
  bool prefers = server < local;
  double loss = std::max(server, local) / std::max(std::min(server, local), 1.0) - 1;
  if (e.trial_calls == 0 && is_time_for_trial(e, call, loss)) {
    e.trial_calls = kTrialCalls;
    e.tries_server = !prefers;
  }
  if (e.trial_calls == 0) return prefers;
  e.trial_calls--;
  return e.tries_server;
}

// loss: what the worse way takes more, as a share of the better way.
bool CallCosts::is_time_for_trial(Estimate& e, const Expected& call, double loss) const {
  bool is_measured = e.server_byte_ns.is_known() && is_local_known(e);
  bool is_short = e.server_byte_ns.is_known() && call.bytes * e.server_byte_ns.value < kShortCalls * call_ns_;
  bool is_close = is_measured && loss < kCloseLoss;
  if (!is_close && !is_short) return false;
  double interval = is_close ? std::max<double>(kMinInterval, kTrialCalls * loss / kTrialCost) : e.next_trial;
  if (++e.calls < interval) return false;
  if (!is_close) e.next_trial *= kTrialGrowth;
  e.calls = 0;
  return true;
}

// Whether the first call of a trial has ended, of a way whose costs are known.
bool CallCosts::is_cold(const Estimate& e, bool on_server) {
  bool is_known = on_server ? e.server_byte_ns.is_known() : is_local_known(e);
  return is_known && e.trial_calls == kTrialCalls - 1 && e.tries_server == on_server;
}

void CallCosts::ran_locally(const Expected& call, uint64_t ns) {
  LockGuard hold(lock_);
  Estimate& e = estimate_of(call);
  if (is_cold(e, false)) return;
  auto time = static_cast<double>(ns);
  if (is_local_known(e)) time = std::min(time, kMaxGrowth * local_ns(e, call));
  double bytes = std::max(call.bytes, 1.0);
  if (call.far < kNearShare * bytes) return e.local_byte_ns.learn(time / bytes);
  e.fetch_byte_ns.learn(std::max(0.0, time - bytes * std::min(near_byte_ns(e), time / bytes)) / call.far);
}

void CallCosts::ran_on_server(const Expected& call, uint64_t ns) {
  LockGuard hold(lock_);
  Estimate& e = estimate_of(call);
  if (is_cold(e, true)) return;
  auto time = static_cast<double>(ns);
  if (e.server_byte_ns.is_known()) time = std::min(time, kMaxGrowth * server_ns(e, call));
  double bytes = std::max(call.bytes, 1.0), known = call_ns_ + bytes * e.server_byte_ns.value;
  if (time < call_ns_) call_ns_ = (call_ns_ + time) / 2;
  // With much to write back, the rest of the time is that of the write-back.
  bool writes = e.server_byte_ns.is_known() && call.dirty * write_byte_ns_ > known;
  if (writes) write_byte_ns_ = (write_byte_ns_ + std::max(0.0, time - known) / call.dirty) / 2;
  else e.server_byte_ns.learn(std::max(0.0, time - call_ns_ - call.dirty * write_byte_ns_) / bytes);
}

void CallCosts::failed_on_server(const Expected& call) {
  LockGuard hold(lock_);
  Estimate& e = estimate_of(call);
  e.server_byte_ns = {kNever, 1};
}

}  // namespace farside::offload
