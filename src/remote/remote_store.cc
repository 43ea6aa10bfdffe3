#include "remote/remote_store.h"

#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "remote/address.h"
#include "transport/shm.h"
#include "transport/stream.h"
#include "wire/codec.h"

namespace farside::remote {
namespace {

using transport::Dialer;
using transport::OwnFds;
using transport::ShmRegion;

static_assert(kSlabBytes == wire::kSlabBytes);
static_assert(sizeof(ForkTicket::secret) == wire::kSecretBytes);

constexpr uint64_t kControlTimeoutNs = 5'000'000'000;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class Store final : public RemoteStore {
 public:
  static Result<RemoteStore*> connect(const StoreConfig& config);
  ~Store() override;

  transport::Channel* open_channel(Status* status) override;
  void close_channel(transport::Channel* channel) override { delete channel; }
  Status grow(uint64_t bytes) override { return change_reservation(wire::Op::kGrow, bytes); }
  void shrink(uint64_t bytes) override;
  Result<ForkTicket> prepare_fork() override;
  void forked_in_parent(ForkTicket ticket) override { fds_.close(ticket.fd); }
  Status adopt_in_child(ForkTicket ticket) override;
  const char* address() const override { return address_.endpoint.name; }
  const char* transport_name() const override { return address_.is_shm() ? "shm" : "tcp"; }
  bool owns_fd(int fd) const override { return fds_.contains(fd); }

 private:
  explicit Store(const Address& address) : address_(address) {}
  Status create_region(const StoreConfig& config);
  Status map_memory(int memory_fd, uint64_t bytes);
  void name_region(uint64_t region, const void* secret);
  Status change_reservation(wire::Op op, uint64_t bytes);

  const Address address_;
  OwnFds fds_;
  Dialer attach_;             // opens one more connection to our region
  ShmRegion* shm_ = nullptr;  // null over TCP, and in forked children, whose regions only the server can resolve
  int memory_fd_ = -1;

  Mutex control_lock_;   // guards control_fd_ and what is said on it
  int control_fd_ = -1;  // holds the region; -1 once it was lost
};

Result<RemoteStore*> Store::connect(const StoreConfig& config) {
  auto address = parse_address(config.address);
  if (!address.ok()) return address.status();
  auto* store = new Store(*address);
  if (Status s = store->create_region(config); !s.ok()) {
    delete store;
    return s;
  }
  return store;
}

Status Store::create_region(const StoreConfig& config) {
  size_t token_bytes = config.token ? strlen(config.token) : 0;
  if (token_bytes > wire::kMaxToken) return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  Dialer create = {address_.endpoint, {}, &fds_};
  create.hello.mode = wire::HelloMode::kCreate;
  create.hello.token_bytes = static_cast<uint32_t>(token_bytes);
  create.hello.region_bytes = config.region_bytes;
  if (token_bytes > 0) memcpy(create.hello.token, config.token, token_bytes);

  Status status;
  wire::HelloReply reply;
  int memory_fd = -1;
  control_fd_ = create.open(&status, &reply, &memory_fd);
  if (control_fd_ < 0) return status;
  name_region(reply.region, reply.secret);
  return address_.is_shm() ? map_memory(memory_fd, config.region_bytes) : Status();
}

Status Store::map_memory(int memory_fd, uint64_t bytes) {
  if (memory_fd < 0) return Status::error(EBADMSG, "memory server {} passed no memory along", address());
  memory_fd_ = fds_.adopt(memory_fd);
  if (memory_fd_ < 0) return Status::error(EMFILE, "too many open files: no descriptor for far memory");
  Status status;
  shm_ = ShmRegion::map(memory_fd_, bytes, address_.link, &status);
  return status;
}

void Store::name_region(uint64_t region, const void* secret) {
  attach_ = {address_.endpoint, {}, &fds_};
  attach_.hello.mode = wire::HelloMode::kAttach;
  attach_.hello.region = region;
  memcpy(attach_.hello.secret, secret, wire::kSecretBytes);
}

Store::~Store() {
  delete shm_;
  fds_.close_all_but(-1);
}

transport::Channel* Store::open_channel(Status* status) {
  if (shm_) return new transport::ShmChannel(shm_, &attach_);
  return transport::StreamChannel::open(attach_, status);
}

void Store::shrink(uint64_t bytes) {
  Status s = change_reservation(wire::Op::kShrink, bytes);
  if (!s.ok()) log(LogLevel::kDebug, "{}", s.text());  // the server frees everything with the connection
}

Status Store::change_reservation(wire::Op op, uint64_t bytes) {
  LockGuard hold(control_lock_);
  if (control_fd_ < 0) return Status::error(ECONNRESET, "the connection to memory server {} was lost", address());
  wire::ReserveRequest request = {bytes};
  wire::ReserveReply reply;
  wire::ErrorReply error;
  int r = transport::exchange(control_fd_, op, bytes_of(request), std::as_writable_bytes(std::span(&reply, 1)),
                              now_ns() + kControlTimeoutNs, &error);
  if (r == 0) return {};
  if (error.code != 0) return Status::error(-r, "memory server {} gives no more memory: {}", address(), error.text);
  fds_.close(control_fd_);
  control_fd_ = -1;
  return Status::error(ECONNRESET, "the connection to memory server {} was lost", address());
}

Result<ForkTicket> Store::prepare_fork() {
  Dialer snapshot = attach_;
  snapshot.hello.mode = wire::HelloMode::kSnapshot;
  Status status;
  wire::HelloReply reply;
  ForkTicket ticket;
  ticket.fd = snapshot.open(&status, &reply);
  if (ticket.fd < 0) return status;
  ticket.region = reply.region;
  memcpy(ticket.secret, reply.secret, sizeof ticket.secret);
  return ticket;
}

// Only the forking thread exists here. The parent's channels are left where they are, in this process's copy of near
// memory; their descriptors are closed.
Status Store::adopt_in_child(ForkTicket ticket) {
  new (&control_lock_) Mutex;  // another thread may have held it at the fork
  fds_.close_all_but(ticket.fd);
  delete shm_;
  shm_ = nullptr;
  memory_fd_ = -1;
  control_fd_ = ticket.fd;
  if (!ticket.valid())
    return Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  name_region(ticket.region, ticket.secret);
  return {};
}

}  // namespace

Result<RemoteStore*> RemoteStore::connect(const StoreConfig& config) { return Store::connect(config); }

}  // namespace farside::remote
