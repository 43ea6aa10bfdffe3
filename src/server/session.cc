#include "server/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "server/memory/guarded.h"
#include "transport/segments.h"
#include "wire/crc32c.h"

namespace farside::server {
namespace {

const char* text_of(int code) {
  switch (code) {
    case EINVAL:
      return "malformed request";
    case ERANGE:
      return "outside the region";
    case E2BIG:
      return "more data than one request may carry";
    case ENOSPC:
      return "the reservation is exceeded";
    case ENOMEM:
      return "the server is full";
    case EIO:
      return "this snapshot was given up because the server was full";
    case ENOTSUP:
      return "this server has no UCX; start it with --ucx";
    default:
      return "the server cannot execute this request";
  }
}

// At most one line a second, so that peers cannot flood the log.
void log_bad_peer(const std::string& peer, wire::Op request, uint64_t region, const char* what) {
  static std::atomic<uint64_t> last{0};
  uint64_t now = now_ns(), before = last.load();
  if (now - before < 1'000'000'000 || !last.compare_exchange_strong(before, now)) return;
  log_with(LogLevel::kWarning, {{"peer", peer}, {"region", region}, {"request", wire::name_of(request)}},
           "closed a connection: {}", what);
}

}  // namespace

wire::StatsReply collect_stats(Shared* shared) {
  MemoryPool::Usage u = shared->pool.usage();
  Counters& c = shared->counters;
  return {u.capacity, u.charged,  u.stored,   c.clients,   u.regions,        u.snapshots,  c.reads,
          c.writes,   c.discards, c.bytes_in, c.bytes_out, c.refused_tokens, c.bad_frames, c.refused_requests};
}

Session::Session(int fd, bool is_unix, const tls::Context* tls, uint64_t now, Shared* shared)
    : fd_(fd), is_unix_(is_unix), accepted_ns_(now), since_(now), shared_(shared) {
  sockaddr_storage peer = {}, own = {};
  socklen_t length = sizeof peer, own_length = sizeof own;
  getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length);
  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length);
  source_ = source_of(peer);
  is_local_ = is_same_machine(own, peer);
  peer_ = peer_of(fd, peer);
  refusal_ = shared_->admission.enter(fd, source_);
  count(shared_->counters.clients);
  if (!tls) return;
  tls_ = tls::Stream::accept(*tls, fd);
  if (!tls_) state_ = State::kOver;  // no memory
}

Session::~Session() {
  log_with(LogLevel::kDebug,
           {{"peer", peer_},
            {"region", region_ ? region_->name().id : 0},
            {"requests", requests_},
            {"received_bytes", received_},
            {"sent_bytes", sent_},
            {"duration_ms", (now_ns() - accepted_ns_) / 1'000'000}},
           "connection closed");
  calls_.reset();  // before the region
  tls_.reset();
  os::close(fd_);
  for (int fd : {passed_fd_, accepted_fd_}) {
    if (fd >= 0) os::close(fd);
  }
  if (region_) shared_->pool.release(region_, broken_ && !is_unix_);
  shared_->counters.clients.fetch_sub(1);
  shared_->admission.leave(source_);
}

bool Session::receive() {
  if (!wants_input() || !receive_some()) return false;
  turn_visits_ = 0;
  do {
    answer_complete_frames();
    send();
  } while (tls_ && tls_->has_received() && wants_input() && receive_some());  // no event reports what is decrypted
  return true;
}

ssize_t Session::receive_bytes(std::byte* to, size_t bytes) {
  if (is_unix_) return os::recv_with_fd(fd_, to, bytes, is_open() ? &passed_fd_ : nullptr);
  if (!tls_) return os::recv(fd_, to, bytes, MSG_DONTWAIT);
  ssize_t n = tls_->receive(to, bytes);
  if (n == -EPROTO) {
    count(shared_->counters.bad_frames);
    log_bad_peer(peer_, wire::Op::kHello, 0, tls_->failure());
  }
  if (n == -EPROTONOSUPPORT) refuse_plain_text();
  return n;
}

// The reply is for a client of Farside without TLS. What it sent is received first: unread data would make the kernel
// reset the connection, which may overtake the reply.
void Session::refuse_plain_text() {
  tls_.reset();
  os::recv(fd_, input_.reserve(kGreetingBytes), kGreetingBytes, MSG_DONTWAIT);
  request_.request = 1;  // a greeting's
  close_with_error(EBADMSG, "this server is reached over TLS only; use tls://HOST:PORT");
  send();
}

ssize_t Session::send_bytes() {
  if (!tls_) return os::send(fd_, output_.data(), output_.size(), MSG_DONTWAIT);
  return tls_->send(output_.data(), output_.size());
}

bool Session::receive_some() {
  size_t wanted = !is_open() ? kGreetingBytes - input_.size() : kReceiveBytes;
  if (state_ == State::kOpen &&
      input_.size() >= sizeof(wire::FrameHeader)) {  // its length was checked when the header was complete
    wire::FrameHeader header;
    memcpy(&header, input_.data(), sizeof header);
    size_t frame_bytes = sizeof header + header.payload_bytes;
    if (frame_bytes > input_.size()) wanted = std::max(wanted, frame_bytes - input_.size());
  }
  std::byte* space = input_.reserve(wanted);
  size_t room = !is_open() ? wanted : input_.room();
  ssize_t n = receive_bytes(space, room);
  if (n == -EAGAIN || n == -EINTR) return false;
  if (n <= 0) {
    broken_ = n < 0;
    state_ = State::kOver;
    return true;
  }
  input_.commit(static_cast<size_t>(n));
  received_ += static_cast<uint64_t>(n);
  if (region_) count(region_->client.received, static_cast<uint64_t>(n));
  count(shared_->counters.bytes_in, static_cast<uint64_t>(n));
  return true;
}

void Session::answer_complete_frames() {
  wire::FrameHeader header;
  while (wants_input() && input_.size() >= sizeof header) {
    memcpy(&header, input_.data(), sizeof header);
    request_ = header;
    wire::Bytes payload(input_.data() + sizeof header, header.payload_bytes);
    if (!in_pieces_ && !check_frame(header, payload)) return;
    if (needs_thread(static_cast<wire::Op>(header.op))) {
      wants_thread_ = true;
      return;
    }
    if (!in_pieces_) begun_ns_ = now_ns();
    in_pieces_ = false;
    try {
      handle(header, payload);
    } catch (const std::bad_alloc&) {
      refuse(ENOMEM);
    }
    if (wants_host_) return;
    if (in_pieces_) is_unfinished_ = true;
    else finish_request();
  }
}

// False: it is not complete, or the connection ends.
bool Session::check_frame(const wire::FrameHeader& header, wire::Bytes payload) {
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

void Session::finish_request() {
  requests_++;
  shared_->counters.durations[request_.op].add(now_ns() - begun_ns_);
  if (region_) count(region_->client.requests);
  input_.consume(sizeof request_ + request_.payload_bytes);
  turn_visits_ += 1 + progress_.visits;
  progress_ = {};
  pieces_.clear();
  pieces_.shrink_to_fit();
  is_unfinished_ = turn_visits_ >= kTurnVisits;
}

void Session::go_on() {
  is_unfinished_ = false;
  turn_visits_ = 0;
  answer_complete_frames();
  send();
}

// The result of a piece: whether there are more.
bool Session::continues(int result) { return in_pieces_ = result == kMore; }

// Memory that was released is still being freed, so there may be enough.
bool Session::waits_for_memory(const Status& status) {
  return continues(status.code() == ENOMEM && !shared_->pool.is_tidy() ? kMore : 0);
}

void Session::handle(const wire::FrameHeader& header, wire::Bytes payload) {
  auto op = static_cast<wire::Op>(header.op);
  if ((state_ == State::kGreeting) != (op == wire::Op::kHello)) {
    return close_with_error(EBADMSG, "the first request, and no other, must be HELLO");
  }
  if ((state_ == State::kChallenged) != (op == wire::Op::kProve)) {
    return close_with_error(EBADMSG, "the second request, and no other, must be a proof");
  }
  if (op == wire::Op::kHello) return greet(payload);
  if (op == wire::Op::kProve) return prove(payload);
  if (!fence_) return execute(op, payload);
  auto inside = fence_->enter(generation_);
  if (inside.owns_lock()) execute(op, payload);
  else close_with_error(ESTALE, "a newer connection has replaced this one");
}

void Session::execute(wire::Op op, wire::Bytes payload) {
  bool needs_region = (op >= wire::Op::kRead && op <= wire::Op::kShrink) || op >= wire::Op::kCallOpen;
  if (needs_region && !region_) return refuse(EINVAL, "this connection has no region");
  bool is_of_calls = op >= wire::Op::kCallOpen && op <= wire::Op::kCall;
  // Foreign code may have written this request: see decision 47.
  if (calls_ && !is_of_calls && op != wire::Op::kPing) return refuse(EPERM, "this connection is for calls only");
  bool needs_registry = op == wire::Op::kRegister || op == wire::Op::kServers;
  if (needs_registry && !shared_->registry) return refuse(ENOTSUP, "this server is not a controller");
  switch (op) {
    case wire::Op::kRead:
      return read(payload);
    case wire::Op::kWrite:
      return write(payload);
    case wire::Op::kDiscard:
      return discard(payload);
    case wire::Op::kGrow:
    case wire::Op::kShrink:
      return reserve(op, payload);
    case wire::Op::kStats:
      return stats();
    case wire::Op::kPing:
      return payload.empty() ? reply({}) : refuse(EINVAL);
    case wire::Op::kRegister:
      return take_report(payload);
    case wire::Op::kServers:
      return list_servers();
    case wire::Op::kConnect:
      return accept_passed(payload);
    case wire::Op::kCallOpen:
      return open_calls(payload);
    case wire::Op::kCallCode:
      return add_code(payload);
    case wire::Op::kCall:
      return call(payload);
    case wire::Op::kShare:
      return share(payload);
    case wire::Op::kRevoke:
      return revoke(payload);
    case wire::Op::kHello:
    case wire::Op::kProve:
    case wire::Op::kError:
      break;  // rejected by the caller
  }
}

void Session::greet(wire::Bytes payload) {
  int r = wire::decode_hello(payload, &greeting_.hello);
  if (r < 0) return close_with_error(-r, "malformed HELLO");
  // Clients try again: connections may end meanwhile.
  if (refusal_ != Admission::Refusal::kNone) return close_with_error(EAGAIN, text_of(refusal_));
  os::fill_random(greeting_.challenge.nonce, sizeof greeting_.challenge.nonce);
  state_ = State::kChallenged;
  reply(wire::bytes_of(greeting_.challenge));
}

void Session::prove(wire::Bytes payload) {
  const wire::HelloRequest& hello = greeting_.hello;
  wire::Proof proof;
  wire::Key key;
  if (wire::decode_proof(payload, &proof) < 0) return close_with_error(EBADMSG, "malformed proof");
  if (!authenticate(proof, &key)) return;
  wire::HelloReply answer = {};
  if (hello.mode != wire::HelloMode::kObserve) {
    auto region = region_for(hello, key);
    if (!region.ok() && waits_for_memory(region.status())) return;
    if (!region.ok()) return close_with_error(region.status().code(), region.status().text());
    region_ = *region;
    tenant_ = region_->tenant();
    if (hello.mode == wire::HelloMode::kSnapshot && !tenant_->may(kMayFork))
      return close_with_error(EPERM, fmt::format("the token {} may not fork", tenant_->name).c_str());
    note_client(hello);
    if (!replace_older(hello)) return close_with_error(ESTALE, "a newer connection has replaced this one");
    answer.region = region_->name().id;
    memcpy(answer.secret, region_->name().secret, sizeof answer.secret);
    answer.region_bytes = region_->bytes();
    answer.has_memory = pass_memory_ = is_unix_ && hello.mode == wire::HelloMode::kCreate;
    if (pass_memory_) region_->note_shared();
  }
  wire::mask_secret(key, greeting_, &answer);
  wire::Proof own = wire::server_proof(key, greeting_, answer);
  memcpy(answer.proof, own.proof, sizeof answer.proof);
  state_ = State::kOpen;
  reply(wire::bytes_of(answer));
}

void Session::note_client(const wire::HelloRequest& hello) {
  bool is_new = hello.mode != wire::HelloMode::kAttach;
  log_with(is_new ? LogLevel::kInfo : LogLevel::kDebug, {{"peer", peer_}, {"region", region_->name().id}}, "{}",
           is_new ? "client connected" : "connection opened");
  if (is_new) shared_->pool.set_client(region_, peer_, source_);
}

// Whether the client knows a token, or the secret of the region. False: an error reply is on its way.
bool Session::authenticate(const wire::Proof& proof, wire::Key* key) {
  const wire::HelloRequest& hello = greeting_.hello;
  bool by_token = hello.mode == wire::HelloMode::kCreate || hello.mode == wire::HelloMode::kObserve;
  if (by_token) {
    tenant_ = shared_->tokens.find(greeting_, proof, key);
    if (tenant_) return true;
    count(shared_->counters.refused_tokens);
    close_with_error(EACCES, "wrong token");
    return false;
  }
  auto secret = shared_->pool.secret_of(hello.region);
  if (secret) *key = wire::key_of_secret(secret->data());
  wire::Proof right = wire::client_proof(*key, greeting_);
  if (secret && wire::same_secret(&right, &proof, sizeof right)) return true;
  close_with_error(ENOENT, "no such region; its last connection was closed, or the server restarted");
  return false;
}

// Excludes older connections of the channel. False: a newer one has done so already.
bool Session::replace_older(const wire::HelloRequest& hello) {
  if (hello.channel == 0) return true;
  fence_ = shared_->pool.fence(region_, hello.channel);
  generation_ = hello.generation;
  return fence_->advance(generation_);
}

// key: by which the client proved itself.
Result<Region*> Session::region_for(const wire::HelloRequest& hello, const wire::Key& key) {
  MemoryPool& pool = shared_->pool;
  if (hello.mode == wire::HelloMode::kAttach) return pool.attach(hello.region, key.bytes);
  if (hello.mode == wire::HelloMode::kSnapshot) return pool.snapshot(hello.region, key.bytes);
  if (!tenant_->may(kMayCreate)) return Status::error(EPERM, "the token {} may not create regions", tenant_->name);
  auto refusal = shared_->admission.enter_region(fd_, source_);
  if (refusal != Admission::Refusal::kNone) return Status::error(EAGAIN, "{}", text_of(refusal));
  return pool.create(hello.region_bytes, tenant_);
}

// A large reply is sent from the region's memory. Into others the data is read.
void Session::read(wire::Bytes payload) {
  wire::ListRequest list;
  int r = wire::decode_list(wire::Op::kRead, payload, region_->bytes(), &list);
  if (r < 0) return refuse(-r);
  auto send_it = [&](std::span<iovec> pieces) { return send_in_place(pieces, list.total_bytes); };
  if (!tls_ && list.total_bytes >= kInPlaceBytes && region_->use_in_place(list.extents, send_it))
    return count(shared_->counters.reads);
  size_t frame_bytes = sizeof(wire::FrameHeader) + list.total_bytes;
  std::byte* frame = output_.reserve(frame_bytes);
  std::byte* data = frame + sizeof(wire::FrameHeader);
  std::byte* to = pieces_.empty() ? data : pieces_.data();
  r = region_->read(list.extents, to, &progress_);
  if (continues(r)) {
    if (pieces_.empty()) pieces_.assign(data, data + list.total_bytes);
    return;
  }
  if (r < 0) return refuse(-r);
  if (to != data) memcpy(data, to, list.total_bytes);
  auto header =
      wire::make_header(wire::Op::kRead, wire::kFlagReply, request_.request, static_cast<uint32_t>(list.total_bytes));
  header.crc = wire::crc32c(wire::header_crc(header), data, list.total_bytes);
  memcpy(frame, &header, sizeof header);
  output_.commit(frame_bytes);
  count(shared_->counters.reads);
}

// What the socket does not accept at once is copied, since the memory may be discarded later. False: nothing was sent.
bool Session::send_in_place(std::span<iovec> pieces, uint64_t bytes) {
  if (!flush()) return false;
  auto header = wire::make_header(wire::Op::kRead, wire::kFlagReply, request_.request, static_cast<uint32_t>(bytes));
  uint32_t crc = wire::header_crc(header);
  bool readable = guarded([&] {
    for (const iovec& p : pieces) crc = wire::crc32c(crc, p.iov_base, p.iov_len);
  });
  if (!readable) return false;
  header.crc = crc;
  iovec all[1 + wire::kMaxExtents] = {{&header, sizeof header}};
  std::copy(pieces.begin(), pieces.end(), all + 1);
  msghdr message = {};
  message.msg_iov = all;
  message.msg_iovlen = 1 + pieces.size();
  ssize_t n = os::sendmsg(fd_, &message, MSG_DONTWAIT);
  if (n == -EAGAIN || n == -EINTR) n = 0;
  if (n >= 0) note_sent(static_cast<size_t>(n));
  if (n >= 0 && static_cast<size_t>(n) == sizeof header + bytes) return true;
  broken_ = true;  // unless the rest can be copied
  state_ = State::kOver;
  if (n < 0) return true;
  size_t left = sizeof header + bytes - static_cast<size_t>(n);
  std::byte* rest = output_.reserve(left);
  iovec* at = all;
  transport::advance(&at, static_cast<size_t>(n));
  bool copied = guarded([=] {
    const iovec* piece = at;
    for (size_t done = 0; done < left; done += (piece++)->iov_len)
      copy_shared(rest + done, piece->iov_base, piece->iov_len);
  });
  if (!copied) return true;
  output_.commit(left);
  broken_ = false;
  state_ = State::kOpen;
  return true;
}

void Session::write(wire::Bytes payload) {
  wire::ListRequest list;
  int r = wire::decode_list(wire::Op::kWrite, payload, region_->bytes(), &list);
  if (r == 0) r = region_->write(list.extents, list.data.data(), &progress_);
  if (continues(r)) return;
  if (r < 0) return refuse(-r);
  count(shared_->counters.writes);
  reply({});
}

void Session::discard(wire::Bytes payload) {
  wire::ListRequest list;
  int r = wire::decode_list(wire::Op::kDiscard, payload, region_->bytes(), &list);
  if (r == 0) r = region_->discard(list.extents, &progress_);
  if (continues(r)) return;
  if (r < 0) return refuse(-r);
  count(shared_->counters.discards);
  reply({});
}

void Session::reserve(wire::Op op, wire::Bytes payload) {
  wire::ReserveRequest request;
  if (int r = wire::decode_reserve(payload, &request); r < 0) return refuse(-r);
  Result<uint64_t> reserved = op == wire::Op::kGrow ? shared_->pool.grow(region_, request.bytes, request.sequence)
                                                    : shared_->pool.shrink(region_, request.bytes, request.sequence);
  if (!reserved.ok() && waits_for_memory(reserved.status())) return;
  if (!reserved.ok()) return refuse(reserved.status().code(), reserved.status().text());
  reply(wire::bytes_of(wire::ReserveReply{*reserved}));
}

void Session::share(wire::Bytes payload) {
  wire::ShareRequest request;
  if (int r = wire::decode_share(payload, region_->bytes(), &request); r < 0) return refuse(-r);
  auto answer = std::make_unique<wire::ShareReply>();
  int r = region_->share(shared_->ucx, request.offset, answer.get());
  return r < 0 ? refuse(-r) : reply(wire::bytes_of(*answer));
}

// The reply says that nothing reaches the region's memory any more, so it waits for the end of a process that was
// killed.
void Session::revoke(wire::Bytes payload) {
  if (!payload.empty()) return refuse(EINVAL);
  region_->revoke_share().reset();
  reply({});
}

// Clients need to know how much is free in order to place their data, but not what others do.
void Session::stats() {
  wire::StatsReply all = collect_stats(shared_);
  if (tenant_->may(kMaySeeCounts)) return reply(wire::bytes_of(all));
  wire::StatsReply space = {};
  space.capacity_bytes = all.capacity_bytes;
  space.charged_bytes = all.charged_bytes;
  reply(wire::bytes_of(space));
}

void Session::take_report(wire::Bytes payload) {
  if (!tenant_->may(kMayReport)) return refuse(EPERM, "only the token of a server may report one");
  wire::ServerReport report;
  if (int r = wire::decode_report(payload, &report); r < 0) return refuse(EINVAL);
  int r = shared_->registry->report(report, now_ns());
  return r < 0 ? refuse(-r, "the list of the controller is full") : reply({});
}

void Session::list_servers() {
  if (!tenant_->may(kClientOperations)) return refuse(EPERM, "only the token of a client may list servers");
  auto answer = std::make_unique<wire::ServersReply>();
  for (const wire::ServerEntry& server : shared_->registry->servers(now_ns()))
    answer->servers[answer->count++] = server;
  reply(wire::bytes_of(*answer));
}

// No reply: the client expects its first reply on the new connection.
void Session::accept_passed(wire::Bytes payload) {
  bool valid = payload.empty() && passed_fd_ >= 0 && accepted_fd_ < 0;
  if (!valid) return close_with_error(EBADMSG, "a request to connect without a socket");
  accepted_fd_ = std::exchange(passed_fd_, -1);
}

// Waits for the end of processes, so it is not executed by a worker.
bool Session::needs_thread(wire::Op op) const {
  return op == wire::Op::kCallOpen && state_ == State::kOpen && !has_thread_ && region_ && shared_->calls &&
         tenant_->may(kMayOffload);
}

void Session::begin_calls() {
  has_thread_ = true;
  wants_thread_ = false;
  answer_complete_frames();
  send();
}

void Session::refuse_calls() {
  wants_thread_ = false;
  close_with_error(EAGAIN, "as many clients call functions as the server permits; try again later");
  send();
}

void Session::open_calls(wire::Bytes payload) {
  wire::CallOpen open;
  if (!shared_->calls) return refuse(ENOTSUP, "this server executes no functions; start it with --offload");
  if (!tenant_->may(kMayOffload)) return refuse(EPERM, "this token may not call functions; see allow= of --tokens");
  if (calls_ || wire::decode_call_open(payload, &open) < 0) return refuse(EINVAL);
  if (open.process >= shared_->calls->config().max_processes)
    return refuse(EAGAIN, "the server executes no more calls of a client at a time; see --offload-processes");
  calls_ = std::make_unique<Calls>(*shared_->calls, *region_, open, tls_ ? -1 : fd_, [this] {
    pollfd fd = {fd_, POLLRDHUP, 0};
    return poll(&fd, 1, 0) > 0;
  });
  const sandbox::Limits& limits = shared_->calls->config().limits;
  reply(wire::bytes_of(wire::CallLimits{limits.code_bytes, limits.wall_ns}));
}

void Session::add_code(wire::Bytes payload) {
  wire::CallCodeRequest request;
  wire::CallCodeReply answer;
  if (!calls_) return refuse(EINVAL);
  int r = wire::decode_call_code(payload, &request);
  if (r == 0) r = calls_->add_code(request, &answer);
  if (r == -E2BIG) return refuse(E2BIG, "the program or shared object is larger than --offload-code permits");
  if (r < 0) return refuse(-r);
  reply(wire::bytes_of(answer));
}

void Session::call(wire::Bytes payload) {
  wire::CallPayload request;
  if (!calls_) return refuse(EINVAL);
  if (int r = wire::decode_call(payload, region_->bytes(), &request); r < 0) return refuse(-r);
  Status ready = calls_->prepare(request);
  if (ready.ok() && calls_->is_direct()) {
    wants_host_ = true;
    return;
  }
  std::byte* answer = reserve_call_reply();
  if (ready.ok()) {
    calls_->relay({payload.data() - sizeof(wire::FrameHeader), sizeof(wire::FrameHeader) + payload.size()}, answer);
  } else {
    auto bytes = static_cast<uint32_t>(strlen(ready.text()));
    wire::CallReply header = {-ready.code(), 0, bytes, 0};
    memcpy(answer, &header, sizeof header);
    memcpy(answer + sizeof header, ready.text(), bytes);
  }
  commit_call_reply(answer, request_.request);
}

// In the output, for a wire::CallReply and its bytes.
std::byte* Session::reserve_call_reply() {
  return output_.reserve(sizeof(wire::FrameHeader) + sizeof(wire::CallReply) + wire::kMaxCallBytes) +
         sizeof(wire::FrameHeader);
}

// answer: what reserve_call_reply() returned.
void Session::commit_call_reply(std::byte* answer, uint64_t request) {
  wire::CallReply reply;
  memcpy(&reply, answer, sizeof reply);
  uint32_t bytes = static_cast<uint32_t>(sizeof reply) + reply.result_bytes;
  auto header = wire::make_header(wire::Op::kCall, wire::kFlagReply, request, bytes);
  header.crc = wire::crc32c(wire::header_crc(header), answer, bytes);
  memcpy(answer - sizeof header, &header, sizeof header);
  output_.commit(sizeof header + bytes);
}

void Session::give_to_host() {
  wants_host_ = false;
  if (input_.size() > sandbox::kMaxHandover) return close_with_error(EBADMSG, "too many calls at a time");
  os::fcntl(fd_, F_SETFL, os::fcntl(fd_, F_GETFL, 0) & ~O_NONBLOCK);  // this side does not rely on it
  std::vector<std::byte> received(input_.data(), input_.data() + input_.size());
  input_.consume(input_.size());
  uint64_t request, executed;
  std::byte* answer = reserve_call_reply();
  auto served = calls_->serve(&received, &request, answer, &executed);
  requests_ += executed;
  count(region_->client.requests, executed);
  if (served == sandbox::Sandbox::Served::kLost) {
    state_ = State::kOver;
    return;
  }
  if (served == sandbox::Sandbox::Served::kFailed) commit_call_reply(answer, request);
  else input_.append(received.data(), received.size());
  answer_complete_frames();
  send();
}

void Session::reply(wire::Bytes payload) { append_frame(static_cast<wire::Op>(request_.op), payload); }

void Session::refuse(int code, const char* text) {
  count(shared_->counters.refused_requests);
  log_with(LogLevel::kDebug,
           {{"peer", peer_},
            {"region", region_ ? region_->name().id : 0},
            {"request", wire::name_of(static_cast<wire::Op>(request_.op))}},
           "refused a request: {}", text);
  append_frame(wire::Op::kError, wire::bytes_of(wire::make_error(code, text)));
}
void Session::refuse(int code) { refuse(code, text_of(code)); }

void Session::append_frame(wire::Op op, wire::Bytes payload) {
  auto header = wire::make_header(op, wire::kFlagReply, request_.request, static_cast<uint32_t>(payload.size()));
  header.crc = wire::crc32c(wire::header_crc(header), payload.data(), payload.size());
  output_.append(&header, sizeof header);
  if (!payload.empty()) output_.append(payload.data(), payload.size());
}

// Sends one error reply and then closes the connection.
void Session::close_with_error(int code, const char* what) {
  if (code == EBADMSG) count(shared_->counters.bad_frames);
  log_bad_peer(peer_, static_cast<wire::Op>(request_.op), region_ ? region_->name().id : 0, what);
  append_frame(wire::Op::kError, wire::bytes_of(wire::make_error(code, what)));
  state_ = State::kClosing;
  broken_ = true;
  since_ = now_ns();
}

void Session::send() {
  if (pass_memory_) send_memory_fd();
  while (!output_.empty() && flush()) {
    // Requests that were not executed because output_ was full are in input_ already; no event will report them.
    answer_complete_frames();
  }
  if (state_ == State::kClosing && output_.empty()) state_ = State::kOver;
}

// Sends what is in output_. False: not all of it was accepted, or the connection broke.
bool Session::flush() {
  while (!output_.empty() && state_ != State::kOver) {
    ssize_t n = send_bytes();
    if (n == -EINTR) continue;
    if (n == -EAGAIN) return false;
    if (n < 0) {
      broken_ = true;
      state_ = State::kOver;
      return false;
    }
    output_.consume(static_cast<size_t>(n));
    note_sent(static_cast<size_t>(n));
  }
  return state_ != State::kOver;
}

void Session::note_sent(size_t bytes) {
  sent_ += bytes;
  if (region_) count(region_->client.sent, bytes);
  count(shared_->counters.bytes_out, bytes);
}

// The reply to the greeting is the first data of this socket, so it is sent as a whole.
void Session::send_memory_fd() {
  pass_memory_ = false;
  ssize_t n = os::send_with_fd(fd_, output_.data(), output_.size(), region_->memory_fd());
  if (n > 0) output_.consume(static_cast<size_t>(n));
  else state_ = State::kOver;
}

int Session::take_connection() { return std::exchange(accepted_fd_, -1); }

void Session::trim() {
  input_.trim(kIdleBytes);
  output_.trim(kIdleBytes);
}

}  // namespace farside::server
