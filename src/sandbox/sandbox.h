// An isolated process of one client, in which its functions run: PREFIX/lib/farside/offload_host (host.cc). It has its
// own user, process, mount, network and IPC namespaces, an empty file system, a filter of system calls, limits on
// memory, and no descriptors but those of the client's region and a socket. This class starts it, exchanges calls with
// it, limits their time, and ends it. Used by one thread, which may block.
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
  int region_fd = -1;        // its descriptors are those of the caller
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

  // Executes the call, which was checked by decode_call, and stores the reply's header and its bytes at `reply`, which
  // has room for wire::CallReply and wire::kMaxCallBytes. is_abandoned is called about every 50 ms; the process is
  // ended when it returns true. False: the process has ended, and must not be used again.
  bool call(const wire::CallPayload& call, wire::Bytes payload, const std::function<bool()>& is_abandoned,
            std::byte* reply);

 private:
  Sandbox(const Setup& setup) : limits_(setup.limits) {}
  Status spawn(const Setup& setup);
  Status map_user() const;
  Status load(const std::function<bool()>& is_abandoned);
  bool limit_addresses(uint64_t range_bytes);
  int send(wire::Bytes bytes, const std::function<bool()>& is_abandoned);
  int receive(std::byte* to, size_t bytes, const std::function<bool()>& is_abandoned);
  int wait_ready(short events, const std::function<bool()>& is_abandoned);
  uint64_t cpu_ns() const;
  void begin_limits();
  void end();
  size_t describe_end(int error, int* code, char* text, size_t room);

  const Limits limits_;
  pid_t pid_ = -1;
  int socket_ = -1;
  CoreSharing core_{1000};
  int wait_status_ = 0;           // after end()
  uint64_t own_addresses_ = 0;    // bytes of addresses without ranges
  uint64_t range_addresses_ = 0;  // of the last call
  uint64_t deadline_ns_ = 0, cpu_limit_ns_ = 0;
};

// Whether this machine permits to start such processes; the text says what to change.
Status check_isolation(const std::string& program);

}  // namespace farside::sandbox
