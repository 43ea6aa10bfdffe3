// A child process that uses UCX: the program farside-ucx. UCX runs in processes of its own, which have nothing in their
// memory but what its peers may see: where the network card does not check remote keys, a peer of UCX can read and
// write all memory of the process (docs/decisions/0034-ucx.md). Ordinary code.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace farside::ucx {

// How UCX is used. transports: as UCX's variable UCX_TLS, "ib" or "tcp,cma".
struct Settings {
  std::string program;     // path of farside-ucx; "": UCX is not used
  std::string transports;  // not empty
  bool is_on() const { return !program.empty(); }
};

// The transports of network cards, which check the keys of their peers.
inline constexpr const char* kDefaultTransports = "ib";

// One process. Its owner ends it; it also ends itself when its owner has died. Used by one thread at a time.
class Helper {
 public:
  Helper() = default;
  ~Helper() { stop(); }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // Starts `farside-ucx MODE TRANSPORTS`, with a further argument and descriptor. Of the environment it gets the
  // variables of UCX. Returns before the process has executed anything.
  Status start(const Settings& settings, const char* mode, const std::string& argument, int given_fd);
  bool is_running() const { return pid_ > 0; }

  // Messages to and from the process. -EAGAIN, or -EPIPE where it has ended.
  int send(const void* message, size_t bytes);
  int receive(void* message, size_t bytes);
  // Waits for a message. False: none has arrived in time.
  bool wait(int timeout_ms);

  void kill();  // it executes nothing more; what it had open is closed a little later
  void stop();  // kills it and waits for its end: nothing reaches its memory afterwards

 private:
  pid_t pid_ = -1;
  int control_ = -1;
};

// Waits for the first message of a helper, which is "" or why UCX cannot be used. ENOENT: it is not installed. ENODEV:
// it has none of the transports here.
Status wait_until_ready(Helper* helper, const Settings& settings, int timeout_ms);

// What UCX finds on this machine.
struct Survey {
  std::string version;
  std::vector<std::string> transports;  // "rc_verbs/mlx5_0:1", "tcp/eth0"
  bool has_card = false;                // whose transports are those of "ib"
  bool pages_on_demand = false;         // memory need not be pinned; "ib" needs it on servers
  bool has_only_cards() const;          // whose peers need a key
};
// Asks a helper. Errors as above.
Result<Survey> survey(const Settings& settings);

}  // namespace farside::ucx
