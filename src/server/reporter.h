// Tells a controller about once a second what this server lends, from a thread of its own. A controller that cannot be
// reached is tried again for as long as the server runs; its absence hinders no client that knows the server.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "transport/dial.h"
#include "wire/protocol.h"

namespace farside::server {

class Reporter {
 public:
  // `read` fills in the figures; it is called by the thread. `address` is what clients will dial, as text.
  Reporter(const transport::Endpoint& controller, const std::string& token, const std::string& address,
           std::function<void(wire::ServerReport*)> read);
  ~Reporter();  // tells nobody: without reports the server is soon known to be silent

  // From now on the controller gives this server to nobody. Returns at once.
  void leave();

 private:
  void run();
  int report();

  transport::Dialer dialer_;
  transport::OwnFds fds_;
  const std::string address_;
  const std::function<void(wire::ServerReport*)> read_;
  int fd_ = -1;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool leaving_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace farside::server
