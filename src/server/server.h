// A memory server: lends this machine's memory to clients over TCP, and over a Unix socket to clients on the same
// machine, which may map their region. Runs in its own threads inside any process: `farside serve`, the launcher's
// embedded server, a test.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace farside::server {

struct ServerConfig {
  uint64_t memory = 0;      // bytes lent to all clients together
  std::string listen;       // "host:port" for TCP, port 0 for any; empty: none
  std::string unix_path;    // path of a Unix socket; empty: none
  std::string token;        // what clients must know; empty: nothing
  uint64_t quota = 0;       // bytes that one client may reserve; 0: as many as there are
  unsigned workers = 1;     // threads
  uint64_t grace_ns = 0;    // a region whose last connection broke is kept for so long
  bool controller = false;  // keeps the list of a pool's servers; may lend nothing itself
};

struct ServerStats {
  uint64_t clients;    // open connections
  uint64_t regions;    // regions alive, snapshots included
  uint64_t snapshots;  // regions of forked children that still share pages with their parent's
  uint64_t capacity_bytes, reserved_bytes, stored_bytes;
  uint64_t reads, writes, discards;  // requests served; what clients do in mapped memory is not seen
  uint64_t bytes_in, bytes_out;
  uint64_t refused_tokens, bad_frames, refused_requests;
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(const ServerConfig& config);
  ~Server();

  void stop();  // closes all connections and frees all memory; may be called again
  ServerStats stats() const;
  std::string prometheus_text() const;
  uint16_t tcp_port() const;  // 0 without TCP

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace farside::server
