#include "transport/reconnecting.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "transport/segments.h"

namespace farside::transport {
namespace {

constexpr uint64_t kNapNs = 2'000'000;
constexpr uint64_t kLookNs = 50'000'000;
constexpr uint64_t kAwayNs = 500'000'000;

}  // namespace

bool is_transient(int error) {
  return error == -ETIMEDOUT || error == -ENETUNREACH || error == -EHOSTUNREACH || error == -ENETDOWN ||
         error == -ECONNRESET || error == -EPIPE || error == -EAGAIN;
}

int dial_with_retry(const Dialer& dialer, RetryPolicy patience, Status* status, wire::HelloReply* reply) {
  uint64_t end = now_ns() + patience.limit_ns, pause = ReconnectingChannel::kFirstPauseNs;
  for (;;) {
    uint64_t timeout = std::min(kDialTimeoutNs, patience.retry_ns());
    int fd = dialer.open(status, reply, nullptr, timeout);
    if (fd >= 0 || !is_transient(fd) || now_ns() + pause >= end) return fd;
    os::nanosleep_ns(pause);
    pause = std::min(2 * pause, patience.retry_ns());
  }
}

std::unique_ptr<ReconnectingChannel> ReconnectingChannel::open(const Dialer& dialer, RetryPolicy patience,
                                                               std::atomic<bool>* told, Status* status) {
  Dialer first = dialer;
  first.hello.channel = os::random_u64() | 1;
  first.hello.generation = 1;
  int fd = dial_with_retry(first, patience, status);
  if (fd < 0) return nullptr;
  std::unique_ptr<ReconnectingChannel> channel(new ReconnectingChannel(dialer, patience, told, first.hello.channel));
  channel->generation_ = first.hello.generation;
  channel->stream_ = std::make_unique<StreamChannel>(fd, dialer.fds);
  return channel;
}

ReconnectingChannel::~ReconnectingChannel() {
  for (Slot& slot : slots_) near_free(slot.staging, slot.staging_bytes);
}

int ReconnectingChannel::submit_read(std::span<const Segment> segments, Token* token) {
  Slot* slot;
  int r = begin(Kind::kRead, segments, kMaxRequestBytes, &slot);
  return r < 0 ? r : submit(slot, token);
}

int ReconnectingChannel::submit_write(std::span<const Segment> segments, int pipe, Token* token) {
  Slot* slot;
  int r = begin(Kind::kWrite, segments, kMaxRequestBytes, &slot);
  if (r == 0 && pipe >= 0) r = stage(slot, pipe);
  return r < 0 ? r : submit(slot, token);
}

int ReconnectingChannel::submit_discard(std::span<const Segment> segments, Token* token) {
  Slot* slot;
  int r = begin(Kind::kDiscard, segments, kNoByteLimit, &slot);
  return r < 0 ? r : submit(slot, token);
}

int ReconnectingChannel::begin(Kind kind, std::span<const Segment> segments, uint64_t max_bytes, Slot** slot) {
  uint64_t bytes;
  if (ended_ != 0) return -ECONNRESET;
  if (int r = check_segments(segments, max_bytes, &bytes); r < 0) return r;
  *slot = free_slot();
  if (!*slot) return -EAGAIN;
  (*slot)->kind = kind;
  (*slot)->count = segments.size();
  memcpy((*slot)->segments, segments.data(), segments.size_bytes());
  return 0;
}

int ReconnectingChannel::stage(Slot* slot, int pipe) {
  std::span<Segment> segments(slot->segments, slot->count);
  return stage_pipe(pipe, segments, &slot->staging, &slot->staging_bytes);
}

int ReconnectingChannel::submit(Slot* slot, Token* token) {
  if (in_flight_++ == 0) answered_ns_ = moved_ns_ = looked_ns_ = now_ns();
  slot->token = *token = (++sequence_ * kMaxInFlight) | static_cast<size_t>(slot - slots_);
  slot->result = kInFlight;
  slot->asked = 0;
  if (ask(slot) < 0) give_connection_up();  // a failure from here on is the token's result
  return 0;
}

int ReconnectingChannel::ask(Slot* slot) {
  if (!stream_) return 0;
  std::span<const Segment> segments(slot->segments, slot->count);
  if (slot->kind == Kind::kRead) return stream_->submit_read(segments, &slot->asked);
  if (slot->kind == Kind::kWrite) return stream_->submit_write(segments, -1, &slot->asked);
  return stream_->submit_discard(segments, &slot->asked);
}

void ReconnectingChannel::gather(bool on) {
  gathers_ = on;
  if (stream_) stream_->gather(on);
}

int ReconnectingChannel::poll(Token token) {
  Slot* slot = find(token);
  if (!slot) return -EINVAL;
  if (slot->result == kInFlight && !stream_) reconnect();
  if (slot->result == kInFlight && stream_) take(slot, stream_->poll(slot->asked));
  if (slot->result == kInFlight) return 0;
  slot->token = 0;
  return slot->result == 0 ? 1 : slot->result;
}

int ReconnectingChannel::wait(Token token, uint64_t timeout_ns) {
  uint64_t start = now_ns();
  for (;;) {
    int r = poll(token);
    if (r != 0) return r > 0 ? 0 : r;
    uint64_t passed = now_ns() - start;
    if (passed >= timeout_ns) return -ETIMEDOUT;
    if (!stream_) {
      os::nanosleep_ns(std::min(kNapNs, timeout_ns - passed));
      continue;
    }
    Slot* slot = find(token);
    r = stream_->wait(slot->asked, std::min(kLookNs, timeout_ns - passed));
    if (r != -ETIMEDOUT) take(slot, r == 0 ? 1 : r);
  }
}

// What the connection says of a request. -EINVAL: it was never asked there, because the connection broke before.
void ReconnectingChannel::take(Slot* slot, int result) {
  if (result == 0) return look_for_silence();
  if (result == -ECONNRESET || result == -EINVAL) return give_connection_up();
  if (result == -EBADMSG) return end(result);
  pause_ns_ = kFirstPauseNs;
  next_try_ns_ = 0;
  finish(slot, result > 0 ? 0 : result);
}

void ReconnectingChannel::finish(Slot* slot, int result) {
  slot->result = result;
  answered_ns_ = now_ns();
  in_flight_--;
}

// The time. What passed while the caller did something else was no waiting, and nothing was done about the connection.
uint64_t ReconnectingChannel::look() {
  uint64_t now = now_ns(), away = now - looked_ns_;
  if (away > kAwayNs) {
    answered_ns_ = std::min(now, answered_ns_ + away);
    moved_ns_ = std::min(now, moved_ns_ + away);
  }
  looked_ns_ = now;
  return now;
}

void ReconnectingChannel::look_for_silence() {
  uint64_t now = look();
  if (stream_->moved() != moved_) moved_ns_ = now;
  moved_ = stream_->moved();
  if (now - moved_ns_ > patience_.retry_ns() || now - answered_ns_ > patience_.limit_ns) give_connection_up();
}

// Requests that were answered in time keep their answers; nothing lands in the buffers of the others any more.
void ReconnectingChannel::give_connection_up() {
  for (Slot& slot : slots_) {
    if (!stream_ || slot.token == 0 || slot.result != kInFlight) continue;
    int r = stream_->poll(slot.asked);
    slot.asked = 0;
    if (r == -EBADMSG) return end(r);
    if (r > 0) finish(&slot, 0);
    else if (r < 0 && r != -ECONNRESET && r != -EINVAL) finish(&slot, r);
  }
  stream_.reset();
  moved_ = 0;
  if (in_flight_ > 0) reconnect();
}

void ReconnectingChannel::reconnect() {
  uint64_t now = look(), silence = now - answered_ns_;
  if (silence > patience_.limit_ns) return end(-ECONNRESET);
  if (now < next_try_ns_) return;
  Status status;
  int fd = connect(&status, std::min({kDialTimeoutNs, patience_.retry_ns(), patience_.limit_ns - silence + 1}));
  looked_ns_ = now_ns();  // dialling was waiting
  if (fd < 0 && !is_transient(fd)) {
    // That nobody listens needs no more words than that the server is lost.
    if (fd != -ECONNREFUSED && !told_->exchange(true)) log(LogLevel::kWarning, "{}", status.text());
    return end(-ECONNRESET);
  }
  // A server that greets and then breaks off is asked again no faster than one that cannot be reached.
  next_try_ns_ = looked_ns_ + pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, patience_.retry_ns());
  if (fd < 0) return;
  stream_ = std::make_unique<StreamChannel>(fd, dialer_->fds);
  stream_->gather(gathers_);
  moved_ns_ = looked_ns_;
  // In the order in which they were submitted; tokens count upwards.
  Slot* again[kMaxInFlight];
  size_t count = 0;
  for (Slot& slot : slots_) {
    if (slot.token != 0 && slot.result == kInFlight) again[count++] = &slot;
  }
  std::sort(again, again + count, [](Slot* a, Slot* b) { return a->token < b->token; });
  for (size_t i = 0; i < count; i++) ask(again[i]);  // one that fails shows when it is polled
}

int ReconnectingChannel::connect(Status* status, uint64_t timeout_ns) {
  Dialer next = *dialer_;
  next.hello.channel = channel_;
  next.hello.generation = ++generation_;
  return next.open(status, nullptr, nullptr, timeout_ns);
}

void ReconnectingChannel::end(int error) {
  ended_ = error;
  stream_.reset();
  for (Slot& slot : slots_) {
    if (slot.token != 0 && slot.result == kInFlight) finish(&slot, error);
  }
}

ReconnectingChannel::Slot* ReconnectingChannel::find(Token token) { return find_slot(slots_, token); }

ReconnectingChannel::Slot* ReconnectingChannel::free_slot() { return transport::free_slot(slots_); }

}  // namespace farside::transport
