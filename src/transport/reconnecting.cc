#include "transport/reconnecting.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bits.h"
#include "base/clock.h"
#include "base/random.h"
#include "transport/ranges.h"

namespace farside::transport {
namespace {

constexpr uint64_t kReconnectSleepNs = 2'000'000;  // of wait(), between attempts to connect
constexpr uint64_t kCheckNs = 50'000'000;          // wait() checks the timeouts this often
constexpr uint64_t kWarnOfSilenceNs = 5'000'000'000;
constexpr unsigned kMaxDamaged = 4;  // connections in sequence that broke by damage, without an intact reply
constexpr uint64_t kCallerAbsentNs = 500'000'000;  // without a poll: the time does not count

}  // namespace

bool is_transient(int error) {
  return error == -ETIMEDOUT || error == -ENETUNREACH || error == -EHOSTUNREACH || error == -ENETDOWN ||
         error == -ECONNRESET || error == -EPIPE || error == -EAGAIN;
}

uint64_t spread_pause(uint64_t pause_ns) { return pause_ns - random_u64() % (pause_ns / 2 + 1); }

int dial_with_retry(const Dialer& dialer, RetryPolicy retry, Status* status, wire::HelloReply* reply) {
  uint64_t start = now_ns(), pause = ReconnectingChannel::kFirstPauseNs;
  for (;;) {
    uint64_t left = std::max(saturating_sub(start + retry.limit_ns, now_ns()), ReconnectingChannel::kFirstPauseNs);
    uint64_t timeout = std::min({kDialTimeoutNs, retry.attempt_timeout_ns(), left});
    int fd = dialer.open(status, reply, {}, timeout);
    if (fd >= 0 || !is_transient(fd)) return fd;
    uint64_t waited = now_ns() - start;
    if (waited + pause >= retry.limit_ns) {
      *status = Status::error(status->code(), "{}; waited {:.1f} s (--patience)", status->text(),
                              static_cast<double>(waited) / 1e9);
      return fd;
    }
    if (waited >= kWarnOfSilenceNs) dialer.warn_of_silence(waited, retry.limit_ns);
    os::nanosleep_ns(spread_pause(pause));
    pause = std::min(2 * pause, retry.attempt_timeout_ns());
  }
}

std::unique_ptr<ReconnectingChannel> ReconnectingChannel::open(const Dialer& dialer, RetryPolicy retry,
                                                               Status* status) {
  Dialer first = dialer;
  first.hello.channel = random_u64() | 1;
  first.hello.generation = 1;
  int fd = dial_with_retry(first, retry, status);
  if (fd < 0) return nullptr;
  std::unique_ptr<ReconnectingChannel> channel(new ReconnectingChannel(dialer, retry, first.hello.channel));
  channel->generation_ = first.hello.generation;
  channel->stream_ = std::make_unique<StreamChannel>(fd, dialer.fds, &dialer);
  return channel;
}

ReconnectingChannel::~ReconnectingChannel() {
  end_given_up();
  for (Request& request : requests_) near_free(request.staging, request.staging_bytes);
}

int ReconnectingChannel::submit_read(std::span<const ByteRange> ranges, Token* token) {
  Request* request;
  int r = begin(Kind::kRead, ranges, kMaxRequestBytes, &request);
  return r < 0 ? r : submit(request, token);
}

int ReconnectingChannel::submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) {
  Request* request;
  int r = begin(Kind::kWrite, ranges, kMaxRequestBytes, &request);
  if (r == 0 && pipe >= 0) r = stage(request, pipe);
  return r < 0 ? r : submit(request, token);
}

int ReconnectingChannel::submit_discard(std::span<const ByteRange> ranges, Token* token) {
  Request* request;
  int r = begin(Kind::kDiscard, ranges, kNoByteLimit, &request);
  return r < 0 ? r : submit(request, token);
}

int ReconnectingChannel::begin(Kind kind, std::span<const ByteRange> ranges, uint64_t max_bytes, Request** request) {
  uint64_t bytes;
  if (error_ != 0) return -ECONNRESET;
  if (int r = check_ranges(ranges, max_bytes, &bytes); r < 0) return r;
  *request = free_request();
  if (!*request) return -EAGAIN;
  (*request)->kind = kind;
  (*request)->count = ranges.size();
  memcpy((*request)->ranges, ranges.data(), ranges.size_bytes());
  return 0;
}

int ReconnectingChannel::stage(Request* request, int pipe) {
  std::span<ByteRange> ranges(request->ranges, request->count);
  return stage_pipe(pipe, ranges, &request->staging, &request->staging_bytes);
}

int ReconnectingChannel::submit(Request* request, Token* token) {
  if (in_flight_++ == 0) completed_ns_ = transferred_ns_ = checked_ns_ = now_ns();
  request->token = *token = (++sequence_ * kMaxInFlight) | static_cast<size_t>(request - requests_);
  request->result = kInFlight;
  request->stream_token = 0;
  if (send(request) < 0) drop_connection();  // a failure from here on is the token's result
  return 0;
}

int ReconnectingChannel::send(Request* request) {
  if (!stream_) return 0;
  std::span<const ByteRange> ranges(request->ranges, request->count);
  if (request->kind == Kind::kRead) return stream_->submit_read(ranges, &request->stream_token);
  if (request->kind == Kind::kWrite) return stream_->submit_write(ranges, -1, &request->stream_token);
  return stream_->submit_discard(ranges, &request->stream_token);
}

void ReconnectingChannel::gather(bool on) {
  gathers_ = on;
  if (stream_) stream_->gather(on);
}

int ReconnectingChannel::poll(Token token) {
  Request* request = find(token);
  if (!request) return -EINVAL;
  if (request->result == kInFlight && !stream_) reconnect();
  if (request->result == kInFlight && stream_) handle_result(request, stream_->poll(request->stream_token));
  if (request->result == kInFlight) return 0;
  request->token = 0;
  return request->result == 0 ? 1 : request->result;
}

int ReconnectingChannel::wait(Token token, uint64_t timeout_ns) {
  uint64_t start = now_ns();
  Request* request = find(token);
  if (!request) return -EINVAL;
  for (uint64_t passed = 0;; passed = now_ns() - start) {
    uint64_t left = timeout_ns - std::min(timeout_ns, passed);
    if (request->result == kInFlight && stream_) {
      int r = stream_->wait(request->stream_token, std::min(kCheckNs, left));
      handle_result(request, r == 0 ? 1 : r == -ETIMEDOUT ? 0 : r);
    }
    if (request->result != kInFlight || !stream_) {
      int r = poll(token);
      if (r != 0) return r > 0 ? 0 : r;
    }
    if (left == 0) return -ETIMEDOUT;
    if (!stream_) os::nanosleep_ns(std::min(kReconnectSleepNs, left));
  }
}

void ReconnectingChannel::end_given_up() { dialer_->fds->close(std::exchange(given_up_fd_, -1)); }

// Handles a result of stream_->poll(). -EINVAL: the request was not sent on this connection, because it broke before.
void ReconnectingChannel::handle_result(Request* request, int result) {
  if (result == 0) return check_timeouts();
  if (result == -ECONNRESET || result == -EINVAL) return drop_connection();
  if (result == -EBADMSG) return handle_damage();
  pause_ns_ = kFirstPauseNs;
  next_try_ns_ = 0;
  complete(request, result > 0 ? 0 : result);
}

// A network damaged a request or a reply, or the server does not follow the protocol: only repetition shows which.
void ReconnectingChannel::handle_damage() {
  if (++damaged_ > kMaxDamaged) return give_up(-EBADMSG, 0);
  dialer_->warn_of_damage();
  drop_connection();
}

void ReconnectingChannel::complete(Request* request, int result) {
  if (std::exchange(warned_, false)) dialer_->silence_is_over();
  request->result = result;
  if (result == 0) damaged_ = 0;
  completed_ns_ = now_ns();
  in_flight_--;
}

// Returns the time. A long time since the last poll does not count as waiting, because nothing was sent, received or
// retried meanwhile.
uint64_t ReconnectingChannel::update_clock() {
  uint64_t now = now_ns(), away = now - checked_ns_;
  if (away > kCallerAbsentNs) {
    completed_ns_ = std::min(now, completed_ns_ + away);
    transferred_ns_ = std::min(now, transferred_ns_ + away);
  }
  checked_ns_ = now;
  return now;
}

void ReconnectingChannel::check_timeouts() {
  uint64_t now = update_clock();
  warn_of_silence(now - completed_ns_);
  if (stream_->bytes_transferred() != transferred_) transferred_ns_ = now;
  transferred_ = stream_->bytes_transferred();
  if (now - transferred_ns_ > retry_.attempt_timeout_ns() || now - completed_ns_ > retry_.limit_ns) drop_connection();
}

void ReconnectingChannel::warn_of_silence(uint64_t ns) {
  if (ns < kWarnOfSilenceNs || std::exchange(warned_, true)) return;
  dialer_->warn_of_silence(ns, retry_.limit_ns);
}

// Keeps the replies that have arrived. After it nothing writes into the buffers of the other requests.
void ReconnectingChannel::drop_connection() {
  for (Request& request : requests_) {
    if (!stream_ || request.token == 0 || request.result != kInFlight) continue;
    int r = stream_->poll(request.stream_token);
    request.stream_token = 0;
    if (r > 0) complete(&request, 0);
    else if (r < 0 && r != -ECONNRESET && r != -EINVAL && r != -EBADMSG) complete(&request, r);
  }
  // While it has a stream, there is no earlier connection.
  if (stream_) given_up_fd_ = stream_->abandon();
  stream_.reset();
  transferred_ = 0;
  if (in_flight_ > 0) reconnect();
}

void ReconnectingChannel::reconnect() {
  uint64_t now = update_clock(), silence = now - completed_ns_;
  warn_of_silence(silence);
  if (silence > retry_.limit_ns) return give_up(-ETIMEDOUT, silence, refusal_.ok() ? nullptr : refusal_.text());
  if (now < next_try_ns_) return;
  Status status;
  int fd = connect(&status, std::min({kDialTimeoutNs, retry_.attempt_timeout_ns(), retry_.limit_ns - silence + 1}));
  checked_ns_ = now_ns();  // the time of connecting counts
  // Its descriptor may be the one that is needed; the next poll connects.
  if (fd == -EMFILE && given_up_fd_ >= 0) return end_given_up();
  bool damaged = fd == -EBADMSG && ++damaged_ <= kMaxDamaged;
  // The server had accepted the token: who answers now is another host, as after a change of routes.
  bool other_host = (fd == -EKEYREJECTED || fd == -EACCES) && silence + pause_ns_ < retry_.limit_ns;
  if (fd < 0 && !is_transient(fd) && !damaged && !other_host)
    return give_up(fd, silence, fd == -ECONNREFUSED ? nullptr : status.text());
  refusal_ = other_host ? status : Status();
  // The pause grows also when the connection succeeds, for servers that accept it and then close it.
  next_try_ns_ = checked_ns_ + spread_pause(pause_ns_);
  pause_ns_ = std::min(2 * pause_ns_, retry_.attempt_timeout_ns());
  if (fd < 0) return;
  end_given_up();
  stream_ = std::make_unique<StreamChannel>(fd, dialer_->fds, dialer_);
  stream_->gather(gathers_);
  transferred_ns_ = checked_ns_;
  // In the order of submission: tokens increase.
  Request* pending[kMaxInFlight];
  size_t count = 0;
  for (Request& request : requests_) {
    if (request.token != 0 && request.result == kInFlight) pending[count++] = &request;
  }
  std::sort(pending, pending + count, [](Request* a, Request* b) { return a->token < b->token; });
  for (size_t i = 0; i < count; i++) send(pending[i]);  // a failure is detected by the next poll
}

int ReconnectingChannel::connect(Status* status, uint64_t timeout_ns) {
  Dialer next = *dialer_;
  next.hello.channel = channel_;
  next.hello.generation = ++generation_;
  return next.open(status, nullptr, {}, timeout_ns);
}

// The server is lost, for this reason. Callers receive -EBADMSG or -ECONNRESET.
void ReconnectingChannel::give_up(int reason, uint64_t silence_ns, const char* refusal) {
  dialer_->report_loss(reason, silence_ns, refusal);
  fail(reason == -EBADMSG ? reason : -ECONNRESET);
}

void ReconnectingChannel::fail(int error) {
  error_ = error;
  stream_.reset();
  for (Request& request : requests_) {
    if (request.token != 0 && request.result == kInFlight) complete(&request, error);
  }
}

ReconnectingChannel::Request* ReconnectingChannel::find(Token token) { return find_request(requests_, token); }

ReconnectingChannel::Request* ReconnectingChannel::free_request() { return transport::free_request(requests_); }

}  // namespace farside::transport
