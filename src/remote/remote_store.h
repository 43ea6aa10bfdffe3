// Where this process's far memory lives: one region on one memory server or on several, the channels to it, how much
// of it is reserved, and its snapshots for fork. The pager knows far memory only through this class.
//
// A region is as large as the far space and addressed by the same offsets (direct mapping, MAGE 4.2.3), on every
// server; a server gives it real memory only as far as it was reserved, in slabs (Kona 4.4).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/near.h"
#include "base/status.h"
#include "transport/retry_policy.h"
#include "transport/transport.h"

namespace farside::remote {

inline constexpr uint64_t kSlabBytes = 16 * 1024 * 1024;  // unit in which reservations grow and shrink
inline constexpr unsigned kMaxServers = 16;               // that one process may use

struct StoreConfig {
  const char* address;    // "tcp://host:port", or "shm://path-of-the-server's-unix-socket"; shm takes experiment
                          // settings as a query: "?latency_us=4&gbps=10". Several, separated by commas: all are used.
  const char* token;      // the secret that the servers ask for; "" where they ask for none
  uint64_t region_bytes;  // size of the far space
  unsigned replicas = 1;  // servers that hold each page
  transport::RetryPolicy retry = {};  // with servers over tcp that do not answer
  bool all_needed = true;             // false: with replicas, some servers may be lost already
};

// One server's snapshot of its region, made for a child about to be forked.
struct Snapshot {
  int fd = -1;          // the child's control connection
  uint64_t region = 0;  // the snapshot's name, for the store's own use
  uint8_t secret[16] = {};
  bool valid() const { return fd >= 0; }
};

// The snapshots of all servers. Both sides of the fork inherit their descriptors; a server keeps a snapshot while any
// process holds its descriptor open.
struct ForkTicket {
  Snapshot of[kMaxServers];
  bool valid() const {
    return std::any_of(of, of + kMaxServers, [](const Snapshot& s) { return s.valid(); });
  }
};

class RemoteStore : public NearObject {
 public:
  // Connects, authenticates and creates an empty region, on each server. Fails within 5 seconds when a server does not
  // answer; the status text names the server and says what to do.
  static Result<std::unique_ptr<RemoteStore>> connect(const StoreConfig& config);
  virtual ~RemoteStore() = default;

  // A new channel for one thread, or nullptr with the reason in *status. Uses only base/os.h and base/near.h, so it
  // may be called under a fault. Thread-safe.
  virtual transport::Channel* open_channel(Status* status) = 0;
  virtual void close_channel(transport::Channel* channel) = 0;

  // Raises or lowers the reservation. grow fails with ENOMEM when the servers or this client's quota are full.
  // Thread-safe; round trips to the servers. `bytes` is a multiple of kSlabBytes.
  virtual Status grow(uint64_t bytes) = 0;
  virtual void shrink(uint64_t bytes) = 0;

  // The bytes from `far` on will hold data from now on; they hold none any more, and were discarded. A store of
  // several servers chooses by this which servers hold which slab, and may need more than was reserved: then claim
  // fails with ENOMEM where nobody has room. Thread-safe; seldom a round trip. Each byte is claimed at most once.
  virtual Status claim(uint64_t far, uint64_t bytes) {
    (void)far, (void)bytes;
    return {};
  }
  virtual void unclaim(uint64_t far, uint64_t bytes) { (void)far, (void)bytes; }

  // fork. The caller has made sure that no write is in flight. prepare_fork: the server keeps the region as it is now
  // for one child; one connection and round trip. After the kernel's fork the parent calls forked_in_parent, the child
  // adopt_in_child: there the store stands for the child's own copy-on-write region, all channels of the parent are
  // gone (their memory is reused, their descriptors closed), and new ones are opened on demand.
  virtual Result<ForkTicket> prepare_fork() = 0;
  virtual void forked_in_parent(ForkTicket ticket) = 0;
  virtual Status adopt_in_child(ForkTicket ticket) = 0;

  virtual const char* address() const = 0;         // as configured, for messages
  virtual const char* transport_name() const = 0;  // "shm", "tcp", or "pool" for several servers

  // True if fd is one of the store's own descriptors, which the program must not close.
  virtual bool owns_fd(int fd) const = 0;
};

}  // namespace farside::remote
