// An isolated process of one client, in which its functions run: PREFIX/lib/farside/offload_host (host.cc). It has its
// own user, process, mount, network and IPC namespaces, an empty file system, a filter of system calls, limits on
// memory, and no descriptors but those of the client's region and its sockets. This class starts it, gives it calls or
// the client's connection, limits the time of calls, and ends it. Used by one thread, which may block.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core_sharing.h"
#include "base/status.h"
#include "sandbox/protocol.h"
#include "wire/codec.h"

namespace farside::sandbox {

struct Limits {
  uint64_t memory = uint64_t{256} << 20;     // bytes that a client's functions may allocate
  uint64_t cpu_ns = 10'000'000'000;          // processor time of one call
  uint64_t wall_ns = 20'000'000'000;         // of one call
  uint64_t code_bytes = uint64_t{64} << 20;  // of a program or shared object
};

// What the process gets.
struct Setup {
  std::string program;       // path of offload_host
  int region_fd = -1;        // with its trailer; its descriptors are those of the caller
  int connection_fd = -1;    // of the client, a blocking socket, for serve(); -1: for call()
  uint64_t base = 0;         // the client's address of the region's byte 0
  std::vector<int> objects;  // sealed memory files, at most wire::kMaxCallObjects
  Limits limits;
};

class Sandbox {
 public:
  // Starts the process and loads the objects. ENOEXEC: an object cannot be loaded; the text has the reason.
  // is_abandoned: as of call().
  static Result<std::unique_ptr<Sandbox>> start(const Setup& setup, const std::function<bool()>& is_abandoned);
  // Ends the process, and waits until its memory is unmapped.
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  pid_t pid() const { return pid_; }

  // Executes the call of a frame, which was checked by decode_call, and stores the reply's header and its bytes at
  // `reply`, which has room for wire::CallReply and wire::kMaxCallBytes. is_abandoned is called about every 50 ms; the
  // process is ended when it returns true. False: the process has ended, and must not be used again.
  bool call(wire::Bytes frame, const std::function<bool()>& is_abandoned, std::byte* reply);

  enum class Served {
    kGivenBack,  // the connection; `received` holds what is to be looked at, and may have been made up by a function
    kFailed,     // the process has ended in a call; `reply` is that to `request`
    kLost,       // it has ended, and no reply can be sent: the connection is to be closed
  };
  // Has the process execute the calls that arrive on the connection, after those in `received`, which holds at most
  // kMaxHandover bytes. is_abandoned as above, but every 200 ms while no calls arrive.
  Served serve(std::vector<std::byte>* received, const std::function<bool()>& is_abandoned, uint64_t* request,
               std::byte* reply);
  // That have begun, by what the process says.
  uint64_t calls() const { return state_->calls.load(std::memory_order_relaxed); }

 private:
  Sandbox(const Setup& setup) : limits_(setup.limits) {}
  Status spawn(const Setup& setup);
  Status map_user() const;
  Status load(const Setup& setup, const std::function<bool()>& is_abandoned);
  Status set_limits(const Setup& setup) const;
  Status map_state();
  int hand_over(wire::Bytes bytes, const std::function<bool()>& is_abandoned);
  int receive_reply(std::byte* reply, const std::function<bool()>& is_abandoned);
  int take_back(std::vector<std::byte>* received, const std::function<bool()>& is_abandoned);
  int send(wire::Bytes bytes, const std::function<bool()>& is_abandoned);
  int receive(int fd, std::byte* to, size_t bytes, const std::function<bool()>& is_abandoned);
  int wait_ready(int fd, short events, const std::function<bool()>& is_abandoned);
  int watch(const std::function<bool()>& is_abandoned);
  void store_end(int error, std::byte* reply);
  uint64_t cpu_ns() const;
  void begin_limits();
  void end();
  size_t describe_end(int error, int* code, char* text, size_t room);

  const Limits limits_;
  pid_t pid_ = -1;
  int control_ = -1, replies_ = -1;  // see protocol.h; replies_: -1 where the process has the client's connection
  int state_fd_ = -1;
  HostState* state_ = nullptr;
  CoreSharing core_{1000};
  int wait_status_ = 0;  // after end()
  uint64_t deadline_ns_ = 0, cpu_limit_ns_ = 0;
  uint64_t given_back_ = 0;  // how often
};

// Whether this machine permits to start such processes; the text says what to change.
Status check_isolation(const std::string& program);

}  // namespace farside::sandbox
