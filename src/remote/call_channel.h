// Calls of functions on one server: a connection of its own, over which objects (programs and shared objects) and calls
// are sent, to a process of its own there. For one thread at a time. Uses near memory and base/os.h only, so that what
// is sent may not fault.
#pragma once
#include <span>

#include "remote/server_store.h"
#include "wire/codec.h"
#include "wire/sha256.h"

namespace farside::remote {

// A program or shared object as it is sent.
struct CallObject {
  std::span<const std::byte> bytes;
  wire::Digest hash;
};

class CallChannel : public NearObject {
 public:
  // base: the address of the region's byte 0. process: the number of the process, below wire::kMaxCallProcesses.
  CallChannel(ServerStore& store, uint64_t base, unsigned process) : store_(store), base_(base), process_(process) {}
  ~CallChannel();

  // Opens the connection unless it is open. EOPNOTSUPP: the server executes no functions; EPERM: not for this client;
  // EAGAIN: not now. Where the server had executed a call over an earlier connection, that has ended.
  Status open();
  bool is_open() const { return fd_ >= 0; }
  // Sends the object unless the server has it, and returns its number in *object.
  Status add(const CallObject& object, uint32_t* object_number);
  // Executes a call. `frame`: room for a frame header, then the payload of wire::Op::kCall. A status that is an error:
  // there is no reply. ECONNRESET: it is not known whether the function ran, and open() tells when it has ended.
  Status call(std::span<std::byte> frame, wire::CallReply* reply);
  // The result of the last call, or the text of its error.
  std::span<const std::byte> result() const { return {reply_ + sizeof(wire::CallReply), result_bytes_}; }
  // How many further objects add() takes. A new connection has none.
  uint32_t room() const { return wire::kMaxCallObjects - known_count_; }
  bool knows(const wire::Digest& hash) const;
  void close();
  // In a forked child, whose store has closed the connection.
  void forget() { fd_ = -1; }

 private:
  Status exchange(wire::Op op, std::span<std::byte> frame, std::span<std::byte> reply, size_t* bytes, uint64_t timeout);

  ServerStore& store_;
  const uint64_t base_;
  const unsigned process_;
  int fd_ = -1;
  wire::CallLimits limits_ = {};
  wire::Digest known_[wire::kMaxCallObjects] = {};
  uint32_t known_count_ = 0;
  transport::ReplyTimes times_;
  std::byte* reply_ = nullptr;
  size_t result_bytes_ = 0;
};

}  // namespace farside::remote
