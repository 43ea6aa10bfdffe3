// Calls of functions. The thread of a connection for calls (call_threads.h) starts the isolated process of the client
// (sandbox/sandbox.h), gives it the connection, so that a call takes two messages, and then only watches it. With TLS
// the thread has the connection and relays each call. A region has a process for each call at a time, up to a limit. A
// new connection for one of them ends the older process before it is answered, so that the client knows that nothing of
// an earlier call is written any more.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/sync.h"
#include "sandbox/code.h"
#include "sandbox/sandbox.h"
#include "server/regions/region.h"

namespace farside::server {

struct CallConfig {
  std::string host_program;  // path of offload_host; empty: the server executes no calls
  sandbox::Limits limits;
  unsigned max_processes = 4;     // of a client, for calls at a time
  unsigned max_connections = 64;  // of all clients, each of which has a thread and a process
};

class CallService;

// The calls of one connection. Used by its thread, except request_end().
class Calls {
 public:
  // is_gone: whether the client has closed the connection.
  // connection_fd: of the client; -1: calls are relayed, because of TLS.
  Calls(CallService& service, Region& region, const wire::CallOpen& open, int connection_fd,
        std::function<bool()> is_gone);
  ~Calls();

  // 0; -EBADMSG, -E2BIG, -ENOSPC, -ENOMEM.
  int add_code(const wire::CallCodeRequest& request, wire::CallCodeReply* reply);
  // Whether the process executes calls of the connection itself.
  bool is_direct() const { return connection_fd_ >= 0; }
  // What is missing for a call; without an error, relay() or serve() follows.
  Status prepare(const wire::CallPayload& call);
  // Executes the call of a frame, and stores a CallReply and its bytes at `reply`, which has room for the largest.
  void relay(wire::Bytes frame, std::byte* reply);
  // See Sandbox::serve(). *executed: calls.
  sandbox::Sandbox::Served serve(std::vector<std::byte>* received, uint64_t* request, std::byte* reply,
                                 uint64_t* executed);

  void request_end() { ends_ = true; }

 private:
  bool is_abandoned();
  bool exceeds_reservation() const;
  Status start();

  CallService& service_;
  Region& region_;
  const wire::CallOpen open_;
  const int connection_fd_;
  const std::function<bool()> is_gone_;
  std::atomic<bool> ends_{false};
  std::vector<std::pair<wire::Digest, std::shared_ptr<sandbox::Code>>> objects_;
  sandbox::CodeUpload upload_;
  std::unique_ptr<sandbox::Sandbox> sandbox_;
};

// The processes of all clients. Thread-safe.
class CallService {
 public:
  explicit CallService(const CallConfig& config) : config_(config) {}

  const CallConfig& config() const { return config_; }
  // Ends all calls.
  void stop() { stopping_ = true; }
  bool is_stopping() const { return stopping_; }

  // A process of a region, by the region's identifier and its own number.
  using Process = std::pair<uint64_t, uint64_t>;
  // Makes `calls` the only one of the process; waits until the one before it has ended.
  void enter(Process process, Calls* calls);
  void leave(Process process, Calls* calls);

  sandbox::CodeCache codes;

 private:
  const CallConfig config_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::condition_variable_any left_;
  std::map<Process, Calls*> current_ GUARDED_BY(mutex_);
};

}  // namespace farside::server
