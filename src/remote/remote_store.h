// The far memory of this process: a region on one memory server or on several, the channels to it, its reservation, and
// its snapshots for fork. The pager accesses far memory only through this class.
//
// On every server the region has the size of the far space and the same offsets (direct mapping, MAGE 4.2.3). A server
// provides memory for it only as far as it was reserved, in slabs (Kona 4.4).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/near.h"
#include "base/status.h"
#include "remote/address.h"
#include "transport/dial.h"
#include "transport/failure.h"
#include "transport/retry_policy.h"
#include "transport/transport.h"

namespace farside::remote {

inline constexpr uint64_t kSlabBytes = 16 * 1024 * 1024;  // unit of reservations
inline constexpr unsigned kMaxServers = 16;               // for one process

struct StoreConfig {
  const char* address;                // see parse_address in address.h; or several servers, separated by commas
  const char* token;                  // the secret of the servers; "" or null: none
  uint64_t region_bytes;              // size of the far space
  unsigned replicas = 1;              // servers that store each page
  transport::RetryPolicy retry = {};  // for servers over tcp that do not reply
  // Called when far memory is lost or a request is refused for good, before the pager receives the error. It may end
  // the process. Async-signal-safe.
  transport::FailureReport::Handler on_failure = nullptr;
  bool all_needed = true;  // false: with replicas, servers that cannot be reached are left out
  Relays relays = {};      // through which servers over TLS and UCX are reached
  PlainText plain_text = PlainText::kAllowed;
  uint64_t dial_timeout_ns = transport::kDialTimeoutNs;  // for the first connection to each server
  // A single server is connected to when more than kSlabBytes are reserved, or a channel is opened: that fails where it
  // cannot be reached. The strings above stay valid.
  bool deferred = false;
};

// One server's snapshot of its region, made before a fork for the child.
struct Snapshot {
  int fd = -1;          // the child's control connection
  uint64_t region = 0;  // id of the snapshot's region
  uint8_t secret[16] = {};
  bool valid() const { return fd >= 0; }
};

// The snapshots of all servers. Parent and child of the fork have their descriptors; a server keeps a snapshot while a
// process has its descriptor open.
struct ForkTicket {
  Snapshot of[kMaxServers];
  bool valid() const {
    return std::any_of(of, of + kMaxServers, [](const Snapshot& s) { return s.valid(); });
  }
};

// Copies of slabs in place of those that were lost with their server, or are on one that drains.
struct RepairStatus {
  uint64_t degraded = 0;    // slabs with fewer copies than configured, not counting those on servers that drain
  uint64_t repaired = 0;    // copies made by this process so far
  double seconds_left = 0;  // until no slab is degraded, at the rate so far; negative: no copy is being made
};

class ServerStore;

class RemoteStore : public NearObject {
 public:
  virtual ~RemoteStore() = default;

  // A new channel for one thread, or nullptr with the reason in *status. Thread-safe. Uses only base/os.h and
  // base/near.h, so it may be called during a fault.
  virtual transport::Channel* open_channel(Status* status) = 0;
  virtual void close_channel(transport::Channel* channel) = 0;

  // Raises or lowers the reservation. `bytes` is a multiple of kSlabBytes. grow fails with ENOMEM when the servers are
  // full or the client's quota is exhausted. Thread-safe; costs round trips to the servers.
  virtual Status grow(uint64_t bytes) = 0;
  virtual void shrink(uint64_t bytes) = 0;

  // claim: the range from `far` will hold data. unclaim: it holds none any more, and was discarded. A store with
  // several servers then chooses the servers of its slabs, for which it may need more memory than was reserved; claim
  // fails with ENOMEM if no server has room. Each byte is claimed at most once. Thread-safe; rarely a round trip.
  virtual Status claim(uint64_t far, uint64_t bytes) {
    (void)far, (void)bytes;
    return {};
  }
  virtual void unclaim(uint64_t far, uint64_t bytes) { (void)far, (void)bytes; }

  // For calls of functions on servers. call_server: server i, null from their number on. call_holders: a bit for each
  // server that holds all of the range and may be used for it; written: the function writes it, which no server may do
  // where another one has a copy. Thread-safe.
  virtual ServerStore* call_server(unsigned i) {
    (void)i;
    return nullptr;
  }
  virtual uint32_t call_holders(uint64_t far, uint64_t bytes, bool written) {
    (void)far, (void)bytes, (void)written;
    return 0;
  }

  // Before the servers of a call are chosen, and when it has ended: what it accesses stays where it is meanwhile.
  virtual void begin_call(uint64_t far, uint64_t bytes, bool written) { (void)far, (void)bytes, (void)written; }
  virtual void end_call(uint64_t far, uint64_t bytes, bool written) { (void)far, (void)bytes, (void)written; }

  // The threads of the store itself, if it has any, which make copies of slabs. No other use of the store needs them.
  virtual bool has_threads() const { return false; }
  virtual void start_threads() {}
  virtual void stop_threads() {}
  virtual RepairStatus repair_status() const { return {}; }

  // fork. The caller ensures that no write is in flight. prepare_fork makes a snapshot of the region for one child on
  // each server: one connection and round trip. After the fork the parent calls forked_in_parent, and the child
  // adopt_in_child. The child's store then refers to its own copy-on-write region; the descriptors of the parent's
  // channels are closed there, their objects must not be used, and new channels are opened on demand.
  virtual Result<ForkTicket> prepare_fork() = 0;
  virtual void forked_in_parent(ForkTicket ticket) = 0;
  virtual Status adopt_in_child(ForkTicket ticket) = 0;

  virtual const char* address() const = 0;         // as configured, for messages
  virtual const char* transport_name() const = 0;  // "shm", "tcp", "tls", "ucx", or "pool" for several servers

  // True if fd is a descriptor of the store, which the program must not close. Async-signal-safe.
  virtual bool owns_fd(int fd) const = 0;
};

}  // namespace farside::remote
