#include "transport/faulty.h"

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "transport/ranges.h"

namespace farside::transport {

int FaultyChannel::submit_read(std::span<const ByteRange> ranges, Token* token) {
  if (int r = before_submit(); r < 0) return r;
  int r = inner_->submit_read(ranges, token);
  return after_submit(r, *token);
}

int FaultyChannel::submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) {
  if (int r = before_submit(); r < 0) return r;
  int r = inner_->submit_write(ranges, pipe, token);
  return after_submit(r, *token);
}

int FaultyChannel::submit_discard(std::span<const ByteRange> ranges, Token* token) {
  if (int r = before_submit(); r < 0) return r;
  int r = inner_->submit_discard(ranges, token);
  return after_submit(r, *token);
}

int FaultyChannel::poll(Token token) {
  Held* held = find(token);
  if (!held) return -EINVAL;
  if (inner_ && held->polls_left > 0) {
    held->polls_left--;
    return 0;
  }
  int r = inner_ ? inner_->poll(token) : -ECONNRESET;
  if (r != 0) held->token = 0;
  return r;
}

int FaultyChannel::wait(Token token, uint64_t timeout_ns) {
  uint64_t start = now_ns();
  Held* held = find(token);
  while (held && inner_ && held->polls_left > 0) {
    if (now_ns() - start >= timeout_ns) return -ETIMEDOUT;
    poll(token);
  }
  if (!held || !inner_) return poll(token);
  int r = inner_->wait(token, timeout_ns - std::min(timeout_ns, now_ns() - start));
  if (r != -ETIMEDOUT) held->token = 0;
  return r;
}

int FaultyChannel::before_submit() {
  submits_++;
  if (plan_.die_after && submits_ > plan_.die_after) inner_.reset();
  if (!inner_) return -ECONNRESET;
  return plan_.fail_every && submits_ % plan_.fail_every == 0 ? -EIO : 0;
}

int FaultyChannel::after_submit(int submitted, Token token) {
  if (submitted < 0) return submitted;
  Held& held = held_[token % kMaxInFlight];
  held.token = token;
  held.polls_left = plan_.max_delay_polls ? static_cast<unsigned>(next_random() % (plan_.max_delay_polls + 1)) : 0;
  return submitted;
}

FaultyChannel::Held* FaultyChannel::find(Token token) { return find_request(held_, token); }

// xorshift64*, whose state must not be 0.
uint64_t FaultyChannel::next_random() {
  if (random_ == 0) random_ = 1;
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return random_ * 0x2545f4914f6cdd1d;
}

}  // namespace farside::transport
