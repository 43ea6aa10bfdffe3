#include "ucx/link.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/os.h"
#include "transport/dial.h"
#include "wire/crc32c.h"

namespace farside::ucx {
namespace {

bool is_valid(const transport::RelayRequest& request) {
  sa_family_t family = request.address.ss_family;
  size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : family == AF_INET6 ? sizeof(sockaddr_in6) : 0;
  return bytes != 0 && request.length == bytes;
}

int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  int r = os::call(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return r < 0 ? -r : error;
}

bool is_intact(const wire::FrameHeader& header, wire::Bytes payload) {
  return wire::crc32c(wire::header_crc(header), payload.data(), payload.size()) == header.crc;
}

std::vector<wire::ByteRange> copy_of(const wire::RangeList& list) {
  std::vector<wire::ByteRange> ranges(list.size());
  for (uint32_t i = 0; i < list.size(); i++) ranges[i] = list[i];
  return ranges;
}

// Removes and returns the element with this id.
template <typename T>
bool take(std::vector<T>* from, uint64_t id, T* out) {
  auto it = std::find_if(from->begin(), from->end(), [id](const T& t) { return t.id == id; });
  if (it == from->end()) return false;
  *out = std::move(*it);
  from->erase(it);
  return true;
}

}  // namespace

Link::~Link() {
  leave();
  if (remote_ >= 0) os::close(remote_);
  os::close(local_);
}

uint32_t Link::local_interest() const {
  if (state_ >= State::kEnding) return 0;
  bool reads =
      state_ != State::kConnecting && !is_paused_ && to_remote_.size() < kMaxQueued && to_local_.size() < kMaxQueued;
  return (reads ? EPOLLIN : 0u) | (to_local_.empty() ? 0u : EPOLLOUT);
}

uint32_t Link::remote_interest() const {
  if (remote_ < 0 || state_ == State::kOver) return 0;
  if (state_ == State::kConnecting) return EPOLLOUT;
  bool reads = to_local_.size() < kMaxQueued;
  return (reads ? EPOLLIN : 0u) | (to_remote_.empty() ? 0u : EPOLLOUT);
}

void Link::serve_local(uint32_t events) {
  if (state_ >= State::kEnding) return;
  if (state_ == State::kRequest) receive_request();
  else if (events & EPOLLIN && !receive(local_, &from_local_)) return end_local();
  if (events & (EPOLLHUP | EPOLLERR)) return end_local();
  take_requests();
  if (!send(local_, &to_local_)) end_local();
}

void Link::serve_remote(uint32_t events) {
  if (state_ == State::kOver) return;
  if (state_ == State::kConnecting) return finish_connecting();
  bool ended = events & EPOLLIN && !receive(remote_, &from_remote_);
  take_replies();
  if (ended || (events & (EPOLLHUP | EPOLLERR))) return end_remote();
  take_requests();  // there may be room again
  if (!send(remote_, &to_remote_)) return end_remote();
  if (state_ == State::kEnding && to_remote_.empty()) os::call(SYS_shutdown, remote_, SHUT_WR);
}

void Link::receive_request() {
  auto* at = reinterpret_cast<std::byte*>(&request_) + request_bytes_;
  ssize_t n = os::recv(local_, at, sizeof request_ - request_bytes_, MSG_DONTWAIT);
  if (n == -EAGAIN || n == -EINTR) return;
  if (n <= 0) return end_local();
  request_bytes_ += static_cast<size_t>(n);
  if (request_bytes_ < sizeof request_) return;
  if (!is_valid(request_)) return fail(EINVAL);
  remote_ = transport::open_socket(request_.address.ss_family);
  if (remote_ < 0) return fail(-remote_);
  int r = os::call(SYS_connect, remote_, &request_.address, request_.length);
  if (r < 0 && r != -EINPROGRESS) return fail(-r);
  state_ = State::kConnecting;
}

void Link::finish_connecting() {
  if (int error = connection_error(remote_); error != 0) return fail(error);
  state_ = State::kGreeting;
  send_local(wire::bytes_of(transport::RelayReply{}));
}

// The reply fits into the empty buffer of the socket.
void Link::fail(int error) {
  transport::RelayReply reply = {error, {}};
  os::send(local_, &reply, sizeof reply, MSG_DONTWAIT);
  end_remote();
}

// False: the peer has ended the connection.
bool Link::receive(int fd, Buffer* into) {
  std::byte* space = into->reserve(kReceiveBytes);
  ssize_t n = os::recv(fd, space, into->room(), MSG_DONTWAIT);
  if (n > 0) into->commit(static_cast<size_t>(n));
  return n > 0 || n == -EAGAIN || n == -EINTR;
}

bool Link::send(int fd, Buffer* from) {
  while (!from->empty()) {
    ssize_t n = os::send(fd, from->data(), from->size(), MSG_DONTWAIT);
    if (n == -EINTR) continue;
    if (n == -EAGAIN) return true;
    if (n < 0) return false;
    from->consume(static_cast<size_t>(n));
  }
  return true;
}

void Link::send_local(wire::Bytes frame) {
  to_local_.append(frame.data(), frame.size());
  send(local_, &to_local_);  // an error is an event, too
}

void Link::send_remote(wire::Bytes frame) {
  to_remote_.append(frame.data(), frame.size());
  send(remote_, &to_remote_);
}

void Link::take_requests() {
  wire::FrameHeader header;
  bool is_running = state_ == State::kGreeting || state_ == State::kOpen;
  is_paused_ = false;
  while (is_running && to_remote_.size() < kMaxQueued && from_local_.size() >= sizeof header) {
    memcpy(&header, from_local_.data(), sizeof header);
    if (wire::check_request_header(header) < 0) return end_local();  // it is of the same build
    size_t bytes = sizeof header + header.payload_bytes;
    if (from_local_.size() < bytes) return;
    is_paused_ = !take_request(header, {from_local_.data(), bytes});
    if (is_paused_) return;
    from_local_.consume(bytes);
  }
}

// False: it has to wait.
bool Link::take_request(const wire::FrameHeader& header, wire::Bytes frame) {
  auto op = static_cast<wire::Op>(header.op);
  if (op == wire::Op::kCallOpen) leave();  // the connection is for calls only: not for requests of the relay
  if (op == wire::Op::kHello) note_greeting(frame.subspan(sizeof header));
  bool has_list = op == wire::Op::kRead || op == wire::Op::kWrite || op == wire::Op::kDiscard;
  if (is_open() && region_ && has_list) return take_list(header, op, frame);
  send_remote(frame);
  return true;
}

void Link::note_greeting(wire::Bytes payload) {
  if (wire::decode_hello(payload, &hello_) < 0) return;
  auto region = hello_.region == 0 ? nullptr : regions_.find(request_, hello_.region, 0, false);
  if (!region) return;
  if (hello_.channel != 0) regions_.supersede(region.get(), hello_.channel, hello_.generation);
  if (hello_.mode != wire::HelloMode::kSnapshot || base_) return;
  base_ = std::move(region);
  base_->snapshot_begins();
}

bool Link::take_list(const wire::FrameHeader& header, wire::Op op, wire::Bytes frame) {
  wire::Bytes payload = frame.subspan(sizeof header);
  bool is_change = op != wire::Op::kRead;
  if (is_change && !region_->may_change()) return false;
  wire::ListRequest list;
  bool is_valid = wire::decode_list(op, payload, region_->bytes(), &list) == 0 && is_intact(header, payload);
  if (!is_valid) {  // the server's reply says why
    send_remote(frame);
    return true;
  }
  if (op == wire::Op::kDiscard) region_->discarding(list.ranges);
  else if (region_->start(shared_from_this(), op, list, frame)) return true;
  if (op == wire::Op::kWrite) forward_write(header, list, frame);
  else send_remote(frame);
  if (op == wire::Op::kRead) ask_for(list.ranges[0].offset);
  return true;
}

void Link::forward_write(const wire::FrameHeader& header, const wire::ListRequest& list, wire::Bytes frame) {
  writes_.push_back({header.request, copy_of(list.ranges)});
  send_remote(frame);
}

void Link::repeat(wire::Bytes frame) {
  wire::FrameHeader header;
  memcpy(&header, frame.data(), sizeof header);
  wire::ListRequest list;
  if (wire::decode_list(wire::Op::kWrite, frame.subspan(sizeof header), region_->bytes(), &list) == 0)
    forward_write(header, list, frame);
}

void Link::take_replies() {
  wire::FrameHeader header;
  if (state_ == State::kEnding) return from_remote_.consume(from_remote_.size());
  while (from_remote_.size() >= sizeof header) {
    memcpy(&header, from_remote_.data(), sizeof header);
    if (wire::check_reply_header(header) < 0) {  // for the program to judge
      send_local({from_remote_.data(), from_remote_.size()});
      return from_remote_.consume(from_remote_.size());
    }
    size_t bytes = sizeof header + header.payload_bytes;
    if (from_remote_.size() < bytes) return;
    take_reply(header, {from_remote_.data(), bytes});
    from_remote_.consume(bytes);
  }
}

void Link::take_reply(const wire::FrameHeader& header, wire::Bytes frame) {
  wire::Bytes payload = frame.subspan(sizeof header);
  if (header.request & kOwnRequest) return take_own_reply(header, payload);
  if (is_intact(header, payload)) note_reply(header, payload);
  send_local(frame);
}

void Link::note_reply(const wire::FrameHeader& header, wire::Bytes payload) {
  auto op = static_cast<wire::Op>(header.op);
  if (op == wire::Op::kProve && state_ == State::kGreeting) return opened(payload);
  Forwarded write;
  if (!region_ || !take(&writes_, header.request, &write) || op != wire::Op::kWrite) return;
  region_->stored(write.ranges);
  if (state_ == State::kOpen) ask_for(write.ranges[0].offset);
}

// The program verifies the server's proof; what it does not trust, it closes.
void Link::opened(wire::Bytes payload) {
  wire::HelloReply reply;
  if (wire::decode_hello_reply(payload, &reply) < 0) return;
  state_ = State::kOpen;
  if (auto base = std::exchange(base_, nullptr)) base->snapshot_made();
  if (hello_.mode == wire::HelloMode::kObserve || reply.region_bytes == 0) return;
  bool is_new = hello_.mode != wire::HelloMode::kAttach;
  region_ = regions_.find(request_, reply.region, reply.region_bytes, is_new);
  region_->add(this);
  if (region_->is_to_be_revoked()) ask_to_revoke();
}

void Link::ask_for(uint64_t offset) {
  if (!region_->wants(offset, now_ns())) return;
  wire::ShareRequest request = {offset - offset % wire::kSlabBytes};
  ask(wire::Op::kShare, wire::bytes_of(request), {0, request.offset, region_->snapshots_seen(), false});
}

void Link::ask_to_revoke() {
  region_->revoke_was_sent();
  ask(wire::Op::kRevoke, {}, {0, 0, 0, true});
}

void Link::ask(wire::Op op, wire::Bytes payload, Question question) {
  question.id = kOwnRequest | ++last_question_;
  questions_.push_back(question);
  wire::FrameHeader header = wire::make_header(op, 0, question.id, static_cast<uint32_t>(payload.size()));
  header.crc = wire::crc32c(wire::header_crc(header), payload.data(), payload.size());
  send_remote(wire::bytes_of(header));
  send_remote(payload);
}

void Link::take_own_reply(const wire::FrameHeader& header, wire::Bytes payload) {
  Question question;
  if (!region_ || !take(&questions_, header.request, &question)) return;
  uint64_t now = now_ns();
  bool is_good = is_intact(header, payload);
  if (question.is_revoke) return is_good ? region_->revoked(now) : end_remote();
  wire::ShareReply reply = {};
  wire::ErrorReply error;
  bool is_error = header.op == static_cast<uint8_t>(wire::Op::kError);
  int code = !is_good   ? -EBADMSG
             : is_error ? wire::decode_error(payload, &error)
                        : wire::decode_share_reply(payload, &reply);
  region_->take_answer(question.offset, code, reply, question.snapshots_seen, now);
}

void Link::resume() {
  if (is_paused_) take_requests();
}

void Link::supersede(const RemoteRegion* region, uint64_t channel, uint64_t generation) {
  if (region_.get() == region && hello_.channel == channel && hello_.generation < generation) end_local();
}

// The region counts this link no more.
void Link::leave() {
  if (auto base = std::exchange(base_, nullptr)) base->snapshot_made();
  if (!region_) return;
  auto region = std::exchange(region_, nullptr);
  region->remove(this);
  bool was_revoking = std::any_of(questions_.begin(), questions_.end(), [](const Question& q) { return q.is_revoke; });
  questions_.clear();
  if (was_revoking) region->revoke_was_lost();
}

// The program has gone. What it sent before goes to the server; the end of the connection tells the server that it was
// closed, and not cut.
void Link::end_local() {
  if (state_ >= State::kEnding) return;
  leave();
  if (remote_ < 0 || state_ == State::kConnecting) return end_remote();
  state_ = State::kEnding;
  since_ = now_ns();
  if (to_remote_.empty()) os::call(SYS_shutdown, remote_, SHUT_WR);
}

// The program sees a broken connection after the last reply.
void Link::end_remote() {
  leave();
  if (state_ < State::kEnding) send(local_, &to_local_);
  state_ = State::kOver;
}

void Link::expire(uint64_t now) {
  if (state_ != State::kOpen && now - since_ > kTimeoutNs) end_remote();
}

}  // namespace farside::ucx
