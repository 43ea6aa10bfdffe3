#include "transport/stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "transport/ranges.h"
#include "transport/tcp_options.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::transport {
namespace {

static_assert(kMaxRanges == wire::kMaxRanges && kMaxRequestBytes == wire::kMaxDataBytes);
static_assert(kMaxInFlight == 16, "a token's low four bits are its request");

constexpr uint64_t kReceiveTimeoutNs = 20'000'000;  // of a receive that waits for data

}  // namespace

StreamChannel::StreamChannel(int fd, OwnFds* fds, const Dialer* dialer) : fd_(fd), fds_(fds), dialer_(dialer) {
  os::fcntl(fd, F_SETFL, 0);
  timeval timeout = {0, kReceiveTimeoutNs / 1000};
  os::call(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
}

std::unique_ptr<StreamChannel> StreamChannel::open(const Dialer& dialer, Status* status) {
  int fd = dialer.open(status);
  if (fd < 0) return nullptr;
  auto channel = std::make_unique<StreamChannel>(fd, dialer.fds, &dialer);
  channel->reports_end_ = true;
  return channel;
}

StreamChannel::~StreamChannel() {
  fds_->close(fd_);
  for (Request& request : requests_) near_free(request.staging, request.staging_bytes);
}

int StreamChannel::submit_read(std::span<const ByteRange> ranges, Token* token) {
  uint64_t bytes;
  if (fd_ < 0) return -ECONNRESET;
  if (int r = check_ranges(ranges, kMaxRequestBytes, &bytes); r < 0) return r;
  Request* request = free_request();
  if (!request) return -EAGAIN;
  fill_head(request, wire::Op::kRead, ranges, 0);
  for (size_t i = 0; i < ranges.size(); i++) request->pieces[1 + i] = {ranges[i].near, ranges[i].bytes};
  request->land_end = request->pieces + 1 + ranges.size();
  request->reply_bytes = static_cast<uint32_t>(bytes);
  request->header.crc =
      wire::crc32c(wire::header_crc(request->header), &request->list_head, request->header.payload_bytes);
  return start(request, token);
}

int StreamChannel::submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) {
  uint64_t bytes;
  if (fd_ < 0) return -ECONNRESET;
  if (int r = check_ranges(ranges, kMaxRequestBytes, &bytes); r < 0) return r;
  Request* request = free_request();
  if (!request) return -EAGAIN;
  fill_head(request, wire::Op::kWrite, ranges, bytes);
  if (pipe >= 0) {
    if (int r = stage_pipe(request, pipe, bytes); r < 0) return r;
  } else {
    for (const ByteRange& s : ranges) *request->send_end++ = {s.near, s.bytes};
  }
  uint32_t crc =
      wire::crc32c(wire::header_crc(request->header), &request->list_head, request->header.payload_bytes - bytes);
  for (iovec* p = request->pieces + 1; p < request->send_end; p++) crc = wire::crc32c(crc, p->iov_base, p->iov_len);
  request->header.crc = crc;
  return start(request, token);
}

int StreamChannel::submit_discard(std::span<const ByteRange> ranges, Token* token) {
  uint64_t bytes;
  if (fd_ < 0) return -ECONNRESET;
  if (int r = check_ranges(ranges, kNoByteLimit, &bytes); r < 0) return r;
  Request* request = free_request();
  if (!request) return -EAGAIN;
  fill_head(request, wire::Op::kDiscard, ranges, 0);
  request->header.crc =
      wire::crc32c(wire::header_crc(request->header), &request->list_head, request->header.payload_bytes);
  return start(request, token);
}

int StreamChannel::poll(Token token) {
  Request* request = find(token);
  if (!request) return -EINVAL;
  if (request->result == kInFlight) pump();
  if (request->result == kInFlight) return 0;
  request->token = 0;
  return request->result == 0 ? 1 : request->result;
}

int StreamChannel::wait(Token token, uint64_t timeout_ns) {
  Request* request = find(token);
  if (!request) return -EINVAL;
  bool completed = wait_until(
      reply_times_, timeout_ns, [request] { return request->result != kInFlight; }, [this] { pump(); },
      [this](uint64_t ns) { sleep(ns); });
  if (!completed) return -ETIMEDOUT;
  request->token = 0;
  return request->result;
}

StreamChannel::Request* StreamChannel::find(Token token) { return find_request(requests_, token); }

StreamChannel::Request* StreamChannel::free_request() { return transport::free_request(requests_); }

void StreamChannel::fill_head(Request* request, wire::Op op, std::span<const ByteRange> ranges, size_t data_bytes) {
  size_t list_bytes = sizeof(wire::ListHeader) + ranges.size() * sizeof(wire::ByteRange);
  request->op = op;
  request->reply_bytes = 0;
  request->list_head = {static_cast<uint32_t>(ranges.size()), 0};
  for (size_t i = 0; i < ranges.size(); i++) request->ranges[i] = {ranges[i].far, ranges[i].bytes};
  Token token = (++sequence_ * kMaxInFlight) | static_cast<size_t>(request - requests_);
  request->header = wire::make_header(op, 0, token, static_cast<uint32_t>(list_bytes + data_bytes));
  request->pieces[0] = {&request->header, sizeof request->header + list_bytes};
  request->send_next = request->pieces;
  request->send_end = request->land_end = request->pieces + 1;
}

int StreamChannel::stage_pipe(Request* request, int pipe, size_t bytes) {
  if (int r = fill_staging(pipe, bytes, &request->staging, &request->staging_bytes); r < 0) return r;
  *request->send_end++ = {request->staging, bytes};
  return 0;
}

int StreamChannel::start(Request* request, Token* token) {
  request->token = request->header.request;
  request->result = kInFlight;
  *token = request->token;
  send_queue_[(send_first_ + send_count_++) % kMaxInFlight] = static_cast<uint8_t>(request - requests_);
  if (!gathers_ || send_count_ >= kGathered) pump_send();  // a failure becomes the result of the token
  return 0;
}

// The channel has failed. After this no buffer is written. The server frees the region with its last connection, unless
// that was reset.
void StreamChannel::fail(int error) {
  if (fd_ >= 0) reset_on_close(fd_);
  fds_->close(fd_);
  fd_ = -1;
  send_count_ = 0;
  for (Request& request : requests_) {
    if (request.token != 0 && request.result == kInFlight) request.result = error;
  }
  if (reports_end_) dialer_->report_loss(error, 0);
}

int StreamChannel::abandon() {
  int fd = std::exchange(fd_, -1);
  if (fd >= 0) reset_on_close(fd);
  fail(-ECONNRESET);
  return fd;
}

void StreamChannel::pump() {
  pump_send();
  pump_receive(MSG_DONTWAIT);
}

void StreamChannel::pump_send() {
  while (fd_ >= 0 && send_count_ > 0) {
    iovec pieces[kMaxPieces];
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<size_t>(collect(pieces));
    ssize_t n = os::sendmsg(fd_, &message, MSG_DONTWAIT);
    if (n == -EINTR) continue;
    if (n == -EAGAIN) return;
    if (n < 0) return fail(-ECONNRESET);
    sent(static_cast<size_t>(n));
  }
}

// Collects what is sent next: as much of the first request as fits, and further requests only as a whole. Returns the
// number of pieces.
int StreamChannel::collect(iovec* pieces) {
  int count = 0;
  for (unsigned i = 0; i < send_count_; i++) {
    const Request& request = requests_[send_queue_[(send_first_ + i) % kMaxInFlight]];
    auto more = static_cast<int>(request.send_end - request.send_next);
    if (i > 0 && count + more > kMaxPieces) break;
    more = std::min(more, kMaxPieces);
    std::copy_n(request.send_next, more, pieces + count);
    count += more;
  }
  return count;
}

void StreamChannel::sent(size_t bytes) {
  transferred_ += bytes;
  while (bytes > 0) {
    Request& request = requests_[send_queue_[send_first_]];
    while (bytes > 0 && request.send_next != request.send_end) {
      size_t step = std::min(bytes, request.send_next->iov_len);
      advance(&request.send_next, step);
      bytes -= step;
    }
    if (request.send_next != request.send_end) return;
    send_first_ = (send_first_ + 1) % kMaxInFlight;
    send_count_--;
  }
}

void StreamChannel::pump_receive(int flags) {
  bool drained = false;
  while (fd_ >= 0 && !drained) {
    ssize_t n = receive_once(flags, &drained);
    flags = MSG_DONTWAIT;
    if (n == -EINTR) continue;
    if (n == -EAGAIN) return;
    if (n <= 0) return fail(-ECONNRESET);
    if (consume() < 0) return fail(-EBADMSG);
  }
}

// One receive: into the rest of the reply's buffers, then into buffer_, which is empty at this point.
ssize_t StreamChannel::receive_once(int flags, bool* drained) {
  iovec only_buffer;
  iovec* first = replied_ ? land_next_ : &only_buffer;
  iovec* last = replied_ ? land_end_ : &only_buffer;
  *last = {buffer_, kReceiveBytes};
  msghdr message = {};
  message.msg_iov = first;
  message.msg_iovlen = static_cast<size_t>(last - first) + 1;
  ssize_t n = os::recvmsg(fd_, &message, flags);
  if (n <= 0) return n;
  transferred_ += static_cast<size_t>(n);
  size_t direct = std::min(static_cast<size_t>(n), reply_left_);
  consumed_ = 0;
  buffered_ = static_cast<size_t>(n) - direct;
  *drained = buffered_ < kReceiveBytes;
  landed(direct);
  return n;
}

// Processes all of buffer_, and completes the replies that were received as a whole.
int StreamChannel::consume() {
  for (;;) {
    if (replied_ && reply_left_ == 0) {
      if (int r = finish_reply(); r < 0) return r;
    }
    size_t available = buffered_ - consumed_;
    if (available == 0) return 0;
    const std::byte* from = buffer_ + consumed_;
    size_t step;
    if (replied_) {
      step = std::min({available, reply_left_, land_next_->iov_len});
      memcpy(land_next_->iov_base, from, step);
      landed(step);
    } else {
      step = std::min(available, sizeof reply_ - reply_header_bytes_);
      memcpy(reinterpret_cast<std::byte*>(&reply_) + reply_header_bytes_, from, step);
      reply_header_bytes_ += step;
    }
    consumed_ += step;
    if (!replied_ && reply_header_bytes_ == sizeof reply_) {
      if (int r = begin_reply(); r < 0) return r;
    }
  }
}

// The header is complete. It must belong to a request in flight, with exactly the payload that this request expects.
int StreamChannel::begin_reply() {
  if (int r = wire::check_reply_header(reply_); r < 0) return r;
  Request* request = find(reply_.request);
  if (!request || request->result != kInFlight) return -EBADMSG;
  bool is_error = reply_.op == static_cast<uint8_t>(wire::Op::kError);
  if (!is_error && reply_.op != static_cast<uint8_t>(request->op)) return -EBADMSG;
  if (reply_.payload_bytes != (is_error ? sizeof error_ : request->reply_bytes)) return -EBADMSG;
  // A correct server replies only to requests that it has received completely. Otherwise the rest of the request would
  // be sent from pieces that the reply has overwritten.
  if (request->send_next != request->send_end) return -EBADMSG;
  if (is_error) error_pieces_[0] = {&error_, sizeof error_};
  land_next_ = is_error ? error_pieces_ : request->pieces + 1;
  land_end_ = is_error ? error_pieces_ + 1 : request->land_end;
  reply_left_ = reply_.payload_bytes;
  reply_crc_ = wire::header_crc(reply_);
  replied_ = request;
  return 0;
}

int StreamChannel::finish_reply() {
  if (reply_crc_ != reply_.crc) return -EBADMSG;
  bool is_error = reply_.op == static_cast<uint8_t>(wire::Op::kError);
  int result = is_error ? wire::decode_error(wire::bytes_of(error_), &error_) : 0;
  // The server could not read what it received, and closes the connection.
  if (result == -EBADMSG || result == -EPROTONOSUPPORT) return -EBADMSG;
  replied_->result = result;
  if (is_error && dialer_) dialer_->report_refusal(-result, error_.text);
  replied_ = nullptr;
  reply_header_bytes_ = 0;
  return 0;
}

// `bytes` of the payload were received into the reply's buffers: adds them to the checksum while they are in the cache.
void StreamChannel::landed(size_t bytes) {
  reply_left_ -= bytes;
  while (bytes > 0) {
    size_t step = std::min(bytes, land_next_->iov_len);
    reply_crc_ = wire::crc32c(reply_crc_, land_next_->iov_base, step);
    advance(&land_next_, step);
    bytes -= step;
  }
}

// Sleeps until the socket is readable, or writable if there is data to send, for at most ns and at most a second. Then
// receives and sends.
void StreamChannel::sleep(uint64_t ns) {
  if (send_count_ == 0 && ns >= kReceiveTimeoutNs) return pump_receive(0);
  constexpr uint64_t kMaxMs = 1000;
  int ms = static_cast<int>(std::min(kMaxMs, ns / 1'000'000 + 1));
  short events = static_cast<short>(POLLIN | (send_count_ > 0 ? POLLOUT : 0));
  pollfd p = {fd_, events, 0};
  os::poll(&p, 1, ms);
  pump();
}

}  // namespace farside::transport
