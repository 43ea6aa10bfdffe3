// A memory server: lends memory of this machine to clients over TCP, and over a Unix socket to clients on the same
// machine, which may map their region. It runs in threads of the process that starts it: `farside serve`, the launcher
// with an embedded server, a test. stats(), ready() and append_metrics() are thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "abi/compression.h"
#include "base/status.h"
#include "packed/layout.h"
#include "server/access/tokens.h"
#include "server/calls.h"
#include "tls/credentials.h"
#include "ucx/helper.h"

namespace farside {
class Exposition;
}

namespace farside::server {

// A file for pages that `memory` has no room for.
struct OverflowConfig {
  std::string path;  // a folder, or a file that does not exist yet; empty: no such file
  uint64_t bytes = 0;
};

// "PATH:SIZE", or "": none.
Status parse_overflow(std::string_view option, std::string_view text, OverflowConfig* out);

struct ServerConfig {
  uint64_t memory = 0;                            // bytes, for all clients together
  std::string listen;                             // "host:port" for TCP, port 0 for any free one; empty: no TCP
  std::shared_ptr<const tls::Credentials> tls;    // over which TCP is served; null: plain
  std::string unix_path;                          // path of a Unix socket; empty: no such socket
  bool unix_for_all_users = false;                // and not only for the user who starts the server; all need the token
  std::string token;                              // secret that clients must know; empty: none
  std::vector<TokenEntry> tokens;                 // several of them, instead
  uint64_t quota = 0;                             // bytes that one client may reserve; 0: no limit
  unsigned workers = 1;                           // threads
  uint64_t grace_ns = 0;                          // how long a region is kept after its last connection broke
  CallConfig calls;                               // functions of clients
  ucx::Settings ucx;                              // for one-sided access to regions; off by default
  Compression compress = Compression::kOff;       // cold pages; not with `calls` or `ucx`, which access memory directly
  uint64_t compress_epoch_ns = packed::kEpochNs;  // pages are cold after kColdEpochs without an access
  OverflowConfig overflow;                        // with `compress` only
  bool controller = false;                        // has the list of a pool's servers; then `memory` may be 0
};

struct ServerStats {
  uint64_t clients;    // open connections
  uint64_t regions;    // snapshots included
  uint64_t snapshots;  // regions of forked children that share pages with their parent's
  uint64_t capacity_bytes, reserved_bytes, stored_bytes;
  uint64_t compressed_bytes;         // of what is stored, pages that are compressed
  uint64_t zstd_bytes;               // of these, pages that zstd has compressed
  uint64_t used_bytes;               // memory that what is stored uses
  uint64_t overflow_bytes;           // of what is stored, pages in the overflow file
  uint64_t reads, writes, discards;  // requests; accesses of clients to mapped memory are not counted
  uint64_t bytes_in, bytes_out;
  uint64_t refused_tokens, bad_frames, refused_requests;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config);
  ~Server();

  void stop();  // closes all connections and frees all memory; may be called twice
  // Replaces all tokens. Thread-safe.
  void set_tokens(const std::vector<TokenEntry>& tokens);
  // Whether clients are to move what they have here to other servers. They learn of it at once. Thread-safe.
  void drain(bool on);
  ServerStats stats() const;
  Status ready() const;  // or why no new client should be sent here
  void append_metrics(Exposition* out) const;
  uint16_t tcp_port() const;  // 0 without TCP

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace farside::server
