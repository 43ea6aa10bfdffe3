#include "remote/server_store.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "transport/tcp_options.h"
#include "wire/codec.h"

namespace farside::remote {
namespace {

using transport::Dialer;
using transport::ShmRegion;

static_assert(kSlabBytes == wire::kSlabBytes);
static_assert(sizeof(Snapshot::secret) == wire::kSecretBytes);

constexpr uint64_t kControlTimeoutNs = 5'000'000'000;

}  // namespace

Result<std::unique_ptr<ServerStore>> ServerStore::connect(const Address& address, const StoreConfig& config) {
  if (Status s = check_plain_text(address, config.plain_text); !s.ok()) return s;
  std::unique_ptr<ServerStore> store(new ServerStore(address, config));
  if (config.deferred) return store;
  LockGuard hold(store->control_lock_);
  if (Status s = store->create_region(); !s.ok()) return s;
  return store;
}

// With a channel, a region is needed.
Status ServerStore::use() {
  if (is_used_.load(std::memory_order_acquire)) return {};
  LockGuard hold(control_lock_);
  Status made = is_made_ ? Status() : create_with_reservation();
  if (made.ok()) is_used_.store(true, std::memory_order_release);
  return made;
}

// Without the reservation there is no region: a region that takes nothing from the server holds nothing.
Status ServerStore::create_with_reservation() {
  uint64_t bytes = std::exchange(reserved_, 0);
  Status made = create_region();
  if (made.ok() && bytes > 0) made = change_reservation(wire::Op::kGrow, bytes);
  if (made.ok()) return made;
  reserved_ = bytes;
  shm_.reset();
  fds_.close_all_but(-1);
  control_fd_ = -1;
  is_made_ = false;
  return made;
}

Status ServerStore::create_region() {
  const StoreConfig& config = config_;
  size_t token_bytes = config.token ? strlen(config.token) : 0;
  if (token_bytes > wire::kMaxToken) return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  Dialer create = {.endpoint = address_.endpoint, .fds = &fds_};
  create.hello.mode = wire::HelloMode::kCreate;
  create.hello.region_bytes = config.region_bytes;
  create.key = wire::key_of_token({config.token, token_bytes});

  Status status;
  wire::HelloReply reply;
  int files[wire::kMaxMemoryFiles];
  control_fd_ = create.open(&status, &reply, files, config.dial_timeout_ns);
  if (control_fd_ < 0) return status;
  attach_to(reply.region, reply.secret);
  number_ = reply.server;
  is_made_ = true;
  bool maps = address_.is_shm() && reply.memory_files > 0;  // a server with an overflow file passes none
  return maps ? map_memory(files, config.region_bytes) : Status();
}

Status ServerStore::map_memory(std::span<int> files, uint64_t bytes) {
  if (files[0] < 0) return Status::error(EBADMSG, "memory server {} did not pass its memory file", address());
  for (int& fd : files) {
    if (fd >= 0 && (fd = fds_.adopt(fd)) < 0)
      return Status::error(EMFILE, "too many open files: no descriptor for far memory");
  }
  Status status;
  shm_ = ShmRegion::map({.memory = files[0], .packed = files[1], .connection = control_fd_}, bytes, address_.link,
                        &status);
  return status;
}

void ServerStore::attach_to(uint64_t region, const uint8_t* secret) {
  attach_ = {.endpoint = address_.endpoint, .fds = &fds_, .failures = &failures_};
  attach_.hello.mode = wire::HelloMode::kAttach;
  attach_.hello.region = region;
  attach_.key = wire::key_of_secret(secret);
  if (address_.is_shm()) attach_.passing_fd = control_fd_;
}

// The mapping of far memory is removed before its descriptor is closed.
ServerStore::~ServerStore() {
  shm_.reset();
  fds_.close_all_but(-1);
}

int ServerStore::open_connection(Status* status) {
  if (*status = use(); !status->ok()) return -1;
  return transport::dial_with_retry(attach_, retry_, status);
}

transport::Channel* ServerStore::open_channel(Status* status) {
  if (*status = use(); !status->ok()) return nullptr;
  if (shm_) return new transport::ShmChannel(shm_.get(), &attach_);
  if (address_.is_shm()) return transport::StreamChannel::open(attach_, status).release();
  transport::Channel* channel = transport::ReconnectingChannel::open(attach_, retry_, status).release();
  // The region did exist, so the server's reply is the reason why it does not any more.
  bool lost = !channel && status->code() != EMFILE;
  if (lost) *status = Status::error(status->code(), "memory server {} is lost: {}", address(), status->text());
  return channel;
}

void ServerStore::close_channel(transport::Channel* channel) {
  keep_region_alive();
  delete channel;
}

// The control connection keeps the region alive when all channels are closed. It is idle most of the time, so it may be
// broken without having been used since, and the channel that is about to be closed may be the last connection.
void ServerStore::keep_region_alive() {
  if (address_.is_shm()) return;
  LockGuard hold(control_lock_);
  if (control_fd_ < 0 || !is_broken()) return;
  fds_.close(control_fd_);
  Status status;
  control_fd_ = transport::dial_with_retry(attach_, retry_, &status);
  awaits_news_ = false;
}

// 1: the server has said something; -EAGAIN: nothing; else the connection is broken.
ssize_t ServerStore::look_for_input() {
  std::byte byte;
  return os::recv(control_fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

bool ServerStore::is_broken() {
  ssize_t input = look_for_input();
  return input != 1 && input != -EAGAIN;
}

Status ServerStore::check_connection() {
  {
    LockGuard hold(control_lock_);
    if (address_.is_shm() && is_broken()) return {};
    if (awaits_news_ && look_for_input() == -EAGAIN) return {};
  }
  return free_bytes().status();
}

void ServerStore::leave() {
  if (!shares_fds_) fds_.shut_all();
}

// A region that is not made yet is made for more than a slab. Where the server has no room, what was promised stays.
Status ServerStore::grow(uint64_t bytes) {
  LockGuard hold(control_lock_);
  if (is_made_) return change_reservation(wire::Op::kGrow, bytes);
  reserved_ += bytes;
  Status grown = reserved_ > kSlabBytes ? create_with_reservation() : Status();
  if (!grown.ok()) reserved_ -= bytes;
  return grown;
}

void ServerStore::shrink(uint64_t bytes) {
  LockGuard hold(control_lock_);
  Status s = is_made_ ? change_reservation(wire::Op::kShrink, bytes) : Status();
  if (!is_made_) reserved_ -= bytes;
  if (!s.ok()) log(LogLevel::kDebug, "{}", s.text());  // the server frees it when the connections are closed
}

Status ServerStore::change_reservation(wire::Op op, uint64_t bytes) {
  wire::ReserveReply reply;
  wire::ReserveRequest request = {bytes, ++sequence_};
  Status changed = call(op, wire::bytes_of(request), std::as_writable_bytes(std::span(&reply, 1)));
  if (changed.ok()) reserved_ += op == wire::Op::kGrow ? bytes : -bytes;
  return changed;
}

Result<uint64_t> ServerStore::free_bytes() {
  wire::StatsReply stats;
  LockGuard hold(control_lock_);
  Status s = call(wire::Op::kStats, {}, std::as_writable_bytes(std::span(&stats, 1)));
  if (!s.ok()) return s;
  awaits_news_ = true;
  is_draining_ = stats.draining != 0;
  return stats.capacity_bytes - std::min(stats.capacity_bytes, stats.charged_bytes);
}

// A request without a reply is repeated over a new connection. It takes effect only once: see ReserveRequest.
Status ServerStore::call(wire::Op op, std::span<const std::byte> request, std::span<std::byte> reply) {
  uint64_t start = now_ns();
  int r = -ECONNRESET;
  awaits_news_ = false;  // they may come before the reply, or get lost with the connection
  while (control_fd_ >= 0) {
    wire::ErrorReply error;
    uint64_t timeout = std::min(kControlTimeoutNs, retry_.attempt_timeout_ns());
    r = transport::exchange(control_fd_, op, request, reply, now_ns() + timeout, &error);
    if (r == 0) return {};
    if (error.code != 0) return Status::error(-r, "memory server {} rejected a request: {}", address(), error.text);
    bool over_network = !address_.is_shm();  // else further connections are passed over it
    Status status;
    bool again = transport::is_transient(r) && over_network && now_ns() < start + retry_.limit_ns;
    int given_up = std::exchange(control_fd_, again ? transport::dial_with_retry(attach_, retry_, &status) : -1);
    if (over_network) {
      transport::reset_on_close(given_up);  // the region may have no other connection
      fds_.close(given_up);
    }
    // That was the last descriptor.
    if (control_fd_ == -EMFILE) control_fd_ = transport::dial_with_retry(attach_, retry_, &status);
  }
  if (r != -ETIMEDOUT)
    return Status::error(ECONNRESET, "memory server {} closed the connection; check why it ended", address());
  return Status::error(ECONNRESET, "memory server {} has not responded for {:.1f} s; check that it is not stopped",
                       address(), static_cast<double>(now_ns() - start) / 1e9);
}

Result<Snapshot> ServerStore::snapshot() {
  Dialer dialer = attach_;
  dialer.hello.mode = wire::HelloMode::kSnapshot;
  Status status;
  wire::HelloReply reply;
  Snapshot made;
  made.fd = transport::dial_with_retry(dialer, retry_, &status, &reply);
  if (made.fd < 0) return status;
  made.region = reply.region;
  memcpy(made.secret, reply.secret, sizeof made.secret);
  return made;
}

Result<ForkTicket> ServerStore::prepare_fork() {
  if (!is_used_.load()) return ForkTicket{};
  Result<Snapshot> made = snapshot();
  if (!made.ok()) return made.status();
  ForkTicket ticket;
  ticket.of[0] = *made;
  return ticket;
}

Status ServerStore::adopt_in_child(ForkTicket ticket) {
  Status adopted = adopt(ticket.of[0]);
  return is_used_.load() ? adopted : Status();
}

// In the child, which has only the forking thread. The objects of the parent's channels remain in this process's copy
// of near memory; their descriptors are closed.
Status ServerStore::adopt(const Snapshot& made) {
  new (&control_lock_) Mutex;  // another thread may have held it at the fork
  LockGuard hold(control_lock_);
  if (ReplacingFds::are_shared()) shares_fds_ = true;
  awaits_news_ = false;
  fds_.close_all_but(made.fd);
  shm_.reset();
  control_fd_ = made.fd;
  sequence_ = 0;
  is_made_ = made.valid();
  if (!made.valid()) return Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  attach_to(made.region, made.secret);
  return {};
}

}  // namespace farside::remote
