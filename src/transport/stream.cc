#include "transport/stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "transport/segments.h"
#include "transport/tcp_options.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::transport {
namespace {

static_assert(kMaxSegments == wire::kMaxExtents && kMaxRequestBytes == wire::kMaxDataBytes);
static_assert(kMaxInFlight == 16, "a token's low four bits are its slot");

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
  for (Slot& slot : slots_) near_free(slot.staging, slot.staging_bytes);
}

int StreamChannel::submit_read(std::span<const Segment> segments, Token* token) {
  uint64_t bytes;
  if (fd_ < 0) return -ECONNRESET;
  if (int r = check_segments(segments, kMaxRequestBytes, &bytes); r < 0) return r;
  Slot* slot = free_slot();
  if (!slot) return -EAGAIN;
  fill_head(slot, wire::Op::kRead, segments, 0);
  for (size_t i = 0; i < segments.size(); i++) slot->pieces[1 + i] = {segments[i].near, segments[i].bytes};
  slot->land_end = slot->pieces + 1 + segments.size();
  slot->reply_bytes = static_cast<uint32_t>(bytes);
  slot->header.crc = wire::crc32c(wire::header_crc(slot->header), &slot->list_head, slot->header.payload_bytes);
  return start(slot, token);
}

int StreamChannel::submit_write(std::span<const Segment> segments, int pipe, Token* token) {
  uint64_t bytes;
  if (fd_ < 0) return -ECONNRESET;
  if (int r = check_segments(segments, kMaxRequestBytes, &bytes); r < 0) return r;
  Slot* slot = free_slot();
  if (!slot) return -EAGAIN;
  fill_head(slot, wire::Op::kWrite, segments, bytes);
  if (pipe >= 0) {
    if (int r = stage_pipe(slot, pipe, bytes); r < 0) return r;
  } else {
    for (const Segment& s : segments) *slot->send_end++ = {s.near, s.bytes};
  }
  uint32_t crc = wire::crc32c(wire::header_crc(slot->header), &slot->list_head, slot->header.payload_bytes - bytes);
  for (iovec* p = slot->pieces + 1; p < slot->send_end; p++) crc = wire::crc32c(crc, p->iov_base, p->iov_len);
  slot->header.crc = crc;
  return start(slot, token);
}

int StreamChannel::submit_discard(std::span<const Segment> segments, Token* token) {
  uint64_t bytes;
  if (fd_ < 0) return -ECONNRESET;
  if (int r = check_segments(segments, kNoByteLimit, &bytes); r < 0) return r;
  Slot* slot = free_slot();
  if (!slot) return -EAGAIN;
  fill_head(slot, wire::Op::kDiscard, segments, 0);
  slot->header.crc = wire::crc32c(wire::header_crc(slot->header), &slot->list_head, slot->header.payload_bytes);
  return start(slot, token);
}

int StreamChannel::poll(Token token) {
  Slot* slot = find(token);
  if (!slot) return -EINVAL;
  if (slot->result == kInFlight) pump();
  if (slot->result == kInFlight) return 0;
  slot->token = 0;
  return slot->result == 0 ? 1 : slot->result;
}

int StreamChannel::wait(Token token, uint64_t timeout_ns) {
  Slot* slot = find(token);
  if (!slot) return -EINVAL;
  bool completed = wait_until(
      reply_times_, timeout_ns, [slot] { return slot->result != kInFlight; }, [this] { pump(); },
      [this](uint64_t ns) { sleep(ns); });
  if (!completed) return -ETIMEDOUT;
  slot->token = 0;
  return slot->result;
}

StreamChannel::Slot* StreamChannel::find(Token token) { return find_slot(slots_, token); }

StreamChannel::Slot* StreamChannel::free_slot() { return transport::free_slot(slots_); }

void StreamChannel::fill_head(Slot* slot, wire::Op op, std::span<const Segment> segments, size_t data_bytes) {
  size_t list_bytes = sizeof(wire::ListHeader) + segments.size() * sizeof(wire::Extent);
  slot->op = op;
  slot->reply_bytes = 0;
  slot->list_head = {static_cast<uint32_t>(segments.size()), 0};
  for (size_t i = 0; i < segments.size(); i++) slot->extents[i] = {segments[i].far, segments[i].bytes};
  Token token = (++sequence_ * kMaxInFlight) | static_cast<size_t>(slot - slots_);
  slot->header = wire::make_header(op, 0, token, static_cast<uint32_t>(list_bytes + data_bytes));
  slot->pieces[0] = {&slot->header, sizeof slot->header + list_bytes};
  slot->send_next = slot->pieces;
  slot->send_end = slot->land_end = slot->pieces + 1;
}

int StreamChannel::stage_pipe(Slot* slot, int pipe, size_t bytes) {
  if (int r = fill_staging(pipe, bytes, &slot->staging, &slot->staging_bytes); r < 0) return r;
  *slot->send_end++ = {slot->staging, bytes};
  return 0;
}

int StreamChannel::start(Slot* slot, Token* token) {
  slot->token = slot->header.request;
  slot->result = kInFlight;
  *token = slot->token;
  send_queue_[(send_first_ + send_count_++) % kMaxInFlight] = static_cast<uint8_t>(slot - slots_);
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
  for (Slot& slot : slots_) {
    if (slot.token != 0 && slot.result == kInFlight) slot.result = error;
  }
  if (reports_end_) dialer_->report_loss(error, 0);
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
    const Slot& slot = slots_[send_queue_[(send_first_ + i) % kMaxInFlight]];
    auto more = static_cast<int>(slot.send_end - slot.send_next);
    if (i > 0 && count + more > kMaxPieces) break;
    more = std::min(more, kMaxPieces);
    std::copy_n(slot.send_next, more, pieces + count);
    count += more;
  }
  return count;
}

void StreamChannel::sent(size_t bytes) {
  transferred_ += bytes;
  while (bytes > 0) {
    Slot& slot = slots_[send_queue_[send_first_]];
    while (bytes > 0 && slot.send_next != slot.send_end) {
      size_t step = std::min(bytes, slot.send_next->iov_len);
      advance(&slot.send_next, step);
      bytes -= step;
    }
    if (slot.send_next != slot.send_end) return;
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
  iovec* first = reply_slot_ ? land_next_ : &only_buffer;
  iovec* last = reply_slot_ ? land_end_ : &only_buffer;
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
    if (reply_slot_ && reply_left_ == 0) {
      if (int r = finish_reply(); r < 0) return r;
    }
    size_t available = buffered_ - consumed_;
    if (available == 0) return 0;
    const std::byte* from = buffer_ + consumed_;
    size_t step;
    if (reply_slot_) {
      step = std::min({available, reply_left_, land_next_->iov_len});
      memcpy(land_next_->iov_base, from, step);
      landed(step);
    } else {
      step = std::min(available, sizeof reply_ - reply_header_bytes_);
      memcpy(reinterpret_cast<std::byte*>(&reply_) + reply_header_bytes_, from, step);
      reply_header_bytes_ += step;
    }
    consumed_ += step;
    if (!reply_slot_ && reply_header_bytes_ == sizeof reply_) {
      if (int r = begin_reply(); r < 0) return r;
    }
  }
}

// The header is complete. It must belong to a request in flight, with exactly the payload that this request expects.
int StreamChannel::begin_reply() {
  if (int r = wire::check_reply_header(reply_); r < 0) return r;
  Slot* slot = find(reply_.request);
  if (!slot || slot->result != kInFlight) return -EBADMSG;
  bool is_error = reply_.op == static_cast<uint8_t>(wire::Op::kError);
  if (!is_error && reply_.op != static_cast<uint8_t>(slot->op)) return -EBADMSG;
  if (reply_.payload_bytes != (is_error ? sizeof error_ : slot->reply_bytes)) return -EBADMSG;
  // A correct server replies only to requests that it has received completely. Otherwise the rest of the request would
  // be sent from pieces that the reply has overwritten.
  if (slot->send_next != slot->send_end) return -EBADMSG;
  if (is_error) error_pieces_[0] = {&error_, sizeof error_};
  land_next_ = is_error ? error_pieces_ : slot->pieces + 1;
  land_end_ = is_error ? error_pieces_ + 1 : slot->land_end;
  reply_left_ = reply_.payload_bytes;
  reply_crc_ = wire::header_crc(reply_);
  reply_slot_ = slot;
  return 0;
}

int StreamChannel::finish_reply() {
  if (reply_crc_ != reply_.crc) return -EBADMSG;
  bool is_error = reply_.op == static_cast<uint8_t>(wire::Op::kError);
  int result = is_error ? wire::decode_error(wire::bytes_of(error_), &error_) : 0;
  // The server could not read what it received, and closes the connection.
  if (result == -EBADMSG || result == -EPROTONOSUPPORT) return -EBADMSG;
  reply_slot_->result = result;
  if (is_error && dialer_) dialer_->report_refusal(-result, error_.text);
  reply_slot_ = nullptr;
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
