// A test double around another channel: it delays and reorders completions, makes calls fail, and simulates the failure
// of the peer. Its decisions depend only on the seed and the sequence of calls.
#pragma once
#include <memory>

#include "transport/transport.h"

namespace farside::transport {

class FaultyChannel final : public Channel {
 public:
  struct Plan {
    uint64_t seed = 1;
    unsigned max_delay_polls = 0;  // each completion is delayed by a random number of polls, up to this
    uint64_t fail_every = 0;       // every n-th submission fails with -EIO; 0: none
    uint64_t die_after = 0;        // after this number of submissions the peer fails; 0: never
  };

  FaultyChannel(std::unique_ptr<Channel> inner, Plan plan)
      : inner_(std::move(inner)), plan_(plan), random_(plan.seed) {}

  int submit_read(std::span<const ByteRange> ranges, Token* token) override;
  int submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) override;
  int submit_discard(std::span<const ByteRange> ranges, Token* token) override;
  void gather(bool on) override {
    if (inner_) inner_->gather(on);
  }
  int poll(Token token) override;
  int wait(Token token, uint64_t timeout_ns) override;

 private:
  struct Held {
    Token token = 0;  // 0: free
    unsigned polls_left = 0;
  };

  int before_submit();
  int after_submit(int submitted, Token token);
  Held* find(Token token);
  uint64_t next_random();

  std::unique_ptr<Channel> inner_;  // destroyed when the peer fails, so that no buffer is written afterwards
  Plan plan_;
  uint64_t random_;
  uint64_t submits_ = 0;
  Held held_[kMaxInFlight];
};

}  // namespace farside::transport
