// The client's side of TLS. A program of a run, or a thread of this process, connects to a Unix socket and names a
// server (transport/relay_protocol.h); the relay makes a TLS connection to that server, and passes bytes on in both
// directions. So OpenSSL is loaded into the launcher only, and channels work as over TCP.
//
// Threads wait for events of all connections. None of them waits for a single peer, and the memory of a connection is
// constant: a direction whose receiver is slow is not read. Ordinary code. Thread-safe.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "base/status.h"
#include "tls/relay_settings.h"

namespace farside::tls {

class RelayThread;

class Relay {
 public:
  // Takes ownership of a listening, non-blocking Unix socket. Those who can connect to it use the certificate.
  static Result<std::unique_ptr<Relay>> start(int listener, RelaySettings settings);
  ~Relay();  // ends all connections

  size_t connections() const { return connections_; }

 private:
  Relay(int listener, RelaySettings settings);

  const int listener_;
  const RelaySettings settings_;
  std::atomic<size_t> connections_{0};
  std::vector<std::unique_ptr<RelayThread>> threads_;
};

}  // namespace farside::tls
