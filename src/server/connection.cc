#include "server/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "wire/crc32c.h"

namespace farside::server {

Connection::Connection(int fd, bool is_unix, const tls::Credentials* tls, uint64_t now, ServerState* server)
    : server_(server),
      peer_(peer_of(fd)),
      socket_(fd, is_unix, tls, &server->counters),
      replies_(&socket_.output(), &peer_, &server->counters),
      authentication_(server->admission.enter(fd, peer_.source), &peer_, &server->pool, &server->tokens,
                      &server->admission, &socket_, &replies_),
      accepted_ns_(now),
      since_(now) {
  count(server->counters.clients);
}

Connection::~Connection() {
  Region* region = client_.region;
  log_with(LogLevel::kDebug,
           {{"peer", peer_.name},
            {"region", region ? region->name().id : 0},
            {"requests", requests_},
            {"received_bytes", socket_.received()},
            {"sent_bytes", socket_.sent()},
            {"duration_ms", (now_ns() - accepted_ns_) / 1'000'000}},
           "connection closed");
  handlers_.reset();  // before the region
  socket_.close();
  if (region) server_->pool.release(region, socket_.is_broken() && !socket_.is_unix());
  server_->counters.clients.fetch_sub(1);
  server_->admission.leave(peer_.source);
}

bool Connection::wants_input() const {
  bool waits = wants_thread_ || wants_host_ || is_unfinished_ || socket_.output().size() >= kMaxOutput;
  return state_ <= State::kOpen && !is_over() && !waits;
}

bool Connection::receive() {
  if (!wants_input() || !receive_some()) return false;
  turn_visits_ = 0;
  do {
    answer_complete_frames();
    send();
  } while (socket_.has_decrypted() && wants_input() && receive_some());
  return true;
}

// The first frames are received as a whole at most, the others with what follows them.
size_t Connection::wanted_bytes() const {
  if (!is_open()) return kGreetingBytes - input_.size();
  wire::FrameHeader header;
  if (input_.size() < sizeof header) return kReceiveBytes;
  memcpy(&header, input_.data(), sizeof header);  // its length was checked when the header was complete
  size_t frame_bytes = sizeof header + header.payload_bytes;
  return frame_bytes > input_.size() ? std::max(kReceiveBytes, frame_bytes - input_.size()) : kReceiveBytes;
}

bool Connection::receive_some() {
  size_t wanted = wanted_bytes();
  std::byte* space = input_.reserve(wanted);
  ssize_t n = socket_.receive(space, is_open() ? input_.room() : wanted, is_open());
  if (n == -EAGAIN || n == -EINTR) return false;
  if (n > 0) {
    input_.commit(static_cast<size_t>(n));
    return true;
  }
  if (n == -EPROTO) note_tls_failure();
  if (n == -EPROTONOSUPPORT) refuse_plain_text();
  socket_.end_of_input(n < 0);
  return true;
}

void Connection::note_tls_failure() {
  count(server_->counters.bad_frames);
  replies_.log_bad_peer(wire::Op::kHello, socket_.tls_failure());
}

// The reply is for a client of Farside without TLS. What it sent is received first: unread data would make the kernel
// reset the connection, which may overtake the reply.
void Connection::refuse_plain_text() {
  socket_.drop_tls();
  os::recv(fd(), input_.reserve(kGreetingBytes), kGreetingBytes, MSG_DONTWAIT);
  replies_.begin(wire::make_header(wire::Op::kHello, 0, 1, 0));
  close_with_error(EBADMSG, "this server is reached over TLS only; use tls://HOST:PORT");
  send();
}

void Connection::answer_complete_frames() {
  while (wants_input() && answer_next_frame()) {}
}

// False: there is none that can be executed now.
bool Connection::answer_next_frame() {
  wire::FrameHeader header;
  if (input_.size() < sizeof header) return false;
  memcpy(&header, input_.data(), sizeof header);
  auto op = static_cast<wire::Op>(header.op);
  wire::Bytes payload(input_.data() + sizeof header, header.payload_bytes);
  replies_.begin(header);
  if (!in_pieces_ && !check_frame(header, payload)) return false;
  wants_thread_ = state_ == State::kOpen && !has_thread_ && handlers_->needs_thread(op);
  if (wants_thread_) return false;
  if (!in_pieces_) begun_ns_ = now_ns();
  in_pieces_ = false;
  try {
    follow(handle(op, payload));
  } catch (const std::bad_alloc&) {
    follow(replies_.refuse(ENOMEM));
  }
  return true;
}

// False: it is not complete, or the connection ends.
bool Connection::check_frame(const wire::FrameHeader& header, wire::Bytes payload) {
  auto fails = [this](int code, const char* what) {
    close_with_error(code, what);
    return false;
  };
  int r = wire::check_request_header(header);
  if (r == -EPROTONOSUPPORT) return fails(EPROTONOSUPPORT, "unsupported version of the protocol");
  if (r < 0) return fails(EBADMSG, "not a request of the Farside protocol");
  if (!is_open() && sizeof header + header.payload_bytes > kGreetingBytes)
    return fails(EBADMSG, "the first requests must be HELLO and a proof");
  if (input_.size() < sizeof header + header.payload_bytes) return false;
  if (wire::crc32c(wire::header_crc(header), payload.data(), payload.size()) == header.crc) return true;
  return fails(EBADMSG, "wrong checksum");
}

Outcome Connection::handle(wire::Op op, wire::Bytes payload) {
  if ((state_ == State::kGreeting) != (op == wire::Op::kHello))
    return replies_.close(EBADMSG, "the first request, and no other, must be HELLO");
  if ((state_ == State::kChallenged) != (op == wire::Op::kProve))
    return replies_.close(EBADMSG, "the second request, and no other, must be a proof");
  if (op == wire::Op::kHello) return greet(payload);
  if (op == wire::Op::kProve) return open(payload);
  wants_news_ |= op == wire::Op::kStats && client_.region;
  if (!client_.fence) return handlers_->execute(op, payload);
  auto inside = client_.fence->enter(client_.generation);
  if (inside.owns_lock()) return handlers_->execute(op, payload);
  return replies_.close(ESTALE, "a newer connection has replaced this one");
}

Outcome Connection::greet(wire::Bytes payload) {
  Outcome outcome = authentication_.greet(payload);
  if (outcome == Outcome::kDone) state_ = State::kChallenged;
  return outcome;
}

Outcome Connection::open(wire::Bytes payload) {
  Outcome outcome = authentication_.prove(payload, &client_);
  if (outcome != Outcome::kDone) return outcome;
  handlers_.emplace(client_, server_, &socket_, &replies_);
  state_ = State::kOpen;
  return outcome;
}

void Connection::follow(Outcome outcome) {
  switch (outcome) {
    case Outcome::kUnfinished:
      in_pieces_ = is_unfinished_ = true;
      return;
    case Outcome::kToHost:
      wants_host_ = true;
      return;
    case Outcome::kClose:
      begin_closing();
      return finish_request();
    case Outcome::kDone:
      return finish_request();
  }
}

void Connection::finish_request() {
  const wire::FrameHeader& request = replies_.request();
  note_requests(1);
  server_->counters.durations[request.op].add(now_ns() - begun_ns_);
  input_.consume(sizeof request + request.payload_bytes);
  turn_visits_ += 1 + (handlers_ ? handlers_->finish() : 0);
  is_unfinished_ = turn_visits_ >= kTurnVisits;
}

void Connection::note_requests(uint64_t executed) {
  requests_ += executed;
  if (client_.region) count(client_.region->client.requests, executed);
}

void Connection::go_on() {
  is_unfinished_ = false;
  turn_visits_ = 0;
  answer_complete_frames();
  send();
}

void Connection::begin_calls() {
  has_thread_ = true;
  wants_thread_ = false;
  answer_complete_frames();
  send();
}

void Connection::refuse_calls() {
  wants_thread_ = false;
  close_with_error(EAGAIN, "as many clients call functions as the server permits; try again later");
  send();
}

void Connection::give_to_host() {
  wants_host_ = false;
  if (input_.size() > sandbox::kMaxHandover) return close_with_error(EBADMSG, "too many calls at a time");
  uint64_t executed;
  bool goes_on = handlers_->calls()->give_to_host(&input_, &executed);
  note_requests(executed);
  if (!goes_on) return socket_.end();
  answer_complete_frames();
  send();
}

// Sends one error reply and then closes the connection.
void Connection::close_with_error(int code, const char* what) {
  replies_.close(code, what);
  begin_closing();
}

void Connection::begin_closing() {
  state_ = State::kClosing;
  socket_.note_broken();
  since_ = now_ns();
}

void Connection::send() {
  socket_.send_passed();
  while (!socket_.output().empty() && socket_.flush()) {
    // Requests that were not executed because the output was full are in input_ already; no event will report them.
    answer_complete_frames();
  }
  if (state_ == State::kClosing && socket_.output().empty()) socket_.end();
}

void Connection::announce() {
  wants_news_ = false;
  wire::FrameHeader news = wire::make_header(wire::Op::kStats, wire::kFlagReply, 0, 0);
  news.crc = wire::header_crc(news);
  socket_.output().append(&news, sizeof news);
  send();
}

void Connection::trim() {
  input_.trim(kIdleBytes);
  socket_.output().trim(kIdleBytes);
}

}  // namespace farside::server
