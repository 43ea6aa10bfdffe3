// The addresses of memory servers, parsed from text. Ordinary code: host names are resolved here.
#pragma once
#include "base/status.h"
#include "transport/dial.h"
#include "transport/shm.h"

namespace farside::remote {

// What an address of a far file says after its path.
struct FileSettings {
  char path[160] = {};        // of a file to be created, a folder to create it in, or a block device
  uint64_t bytes = 0;         // that are lent; 0: all of the device
  bool is_allocated = false;  // alloc=full: from the beginning
  bool wipe = false;          // keep=wipe: overwritten at the end
  bool crypt = false;         // encrypted with a key of the run
};

struct Address {
  transport::Endpoint endpoint;
  transport::ShmRegion::Link link;  // simulated latency and bandwidth, for shm only
  FileSettings file;                // for far files only
  bool is_pool = false;             // the endpoint is a controller, which has the list of memory servers
  bool is_ucx = false;
  bool is_tls() const { return endpoint.is_relayed() && !is_ucx; }
  bool is_shm() const { return endpoint.is_unix(); }
  bool is_file() const { return file.path[0] != 0; }
};

// What becomes of connections to other hosts that are not encrypted.
enum class PlainText { kAllowed, kReported, kRefused };

// Reports or refuses such a connection before it is made.
Status check_plain_text(const Address& address, PlainText plain_text);

// The sockets of relays in other processes; "" or null where there is none.
struct Relays {
  const char* tls = nullptr;
  const char* ucx = nullptr;
};

// Names are resolved by libc, with its allocator and locks; a service thread refuses them.
enum class HostNames { kResolved, kRefused };

// "tcp://host:port", "shm://path[?latency_us=4&gbps=10]", "file:path?size=64G[&alloc=full][&keep=wipe][&crypt=yes]",
// "ucx://host:port" or "pool://host:port"; over TLS "tls://host:port" and "pool+tls://host:port". A host name is
// resolved once, here; numeric addresses need no resolution, and parsing them allocates no memory.
Result<Address> parse_address(const char* text, Relays relays = {}, HostNames names = HostNames::kResolved);

}  // namespace farside::remote
