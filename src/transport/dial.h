// Connections to memory servers and controllers: connecting, the greeting (HELLO), and single requests with a deadline.
// Async-signal-safe, because a channel may be opened during a fault; host names are resolved before, when the Endpoint
// is created. Functions are thread-safe; one connection belongs to one thread at a time.
#pragma once
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/failure.h"
#include "transport/own_fds.h"
#include "transport/waiting.h"
#include "wire/auth.h"

namespace farside::transport {

inline constexpr uint64_t kDialTimeoutNs = 4'500'000'000;

// A non-blocking, close-on-exec socket with the options of a client's connections; or -errno.
int open_socket(int family);

// Connects, to the relay if there is one. Returns a socket as above, or -errno. deadline_ns is a time of now_ns().
int dial(const Endpoint& endpoint, uint64_t deadline_ns);

// Sends one request and waits for its reply, on a connection that has no other request in flight. The reply's payload
// must have exactly the size of `reply`. Returns 0; or -errno with error->code != 0 when the server replied with an
// error; or -errno with error->code == 0 when the connection is not usable any more. passed: receives the descriptors
// that were passed with the reply, and -1 where there are none; the caller closes them. A message that an earlier reply
// is not true any more is skipped.
int exchange(int fd, wire::Op op, std::span<const std::byte> payload, std::span<std::byte> reply, uint64_t deadline_ns,
             wire::ErrorReply* error, std::span<int> passed = {});

// As exchange, for requests of any size and a reply of at most reply.size() bytes. `frame` is the payload after room
// for a header, which is filled in. Polls for the reply as long as `times`, those of this connection, permit.
int exchange_frame(int fd, wire::Op op, std::span<std::byte> frame, std::span<std::byte> reply, size_t* reply_bytes,
                   uint64_t deadline_ns, ReplyTimes& times, wire::ErrorReply* error);

// Everything that is needed to open a further connection to the same server with the same greeting.
struct Dialer {
  Endpoint endpoint;
  wire::HelloRequest hello = {};
  OwnFds* fds = nullptr;
  // An open connection over which new ones are passed to the server: its path need not be visible any more, as after
  // chroot, nor be permitted to this user. -1: connects to the endpoint.
  int passing_fd = -1;
  FailureReport* failures = nullptr;  // of the channels that use this dialer; may be null
  bool to_controller = false;         // for messages
  wire::Key key = {};                 // a token or the secret of a region, as hello.mode requires

  // Reports that the server is lost: -ETIMEDOUT after this silence, -EBADMSG, -ECONNRESET, or the text of its refusal.
  void report_loss(int error, uint64_t silence_ns, const char* refusal = nullptr) const;
  // Reports that the server refused a request, in these words.
  void report_refusal(int code, const char* text) const;
  // Logs that the server does not respond, once for all channels until `over`.
  void warn_of_silence(uint64_t silence_ns, uint64_t limit_ns) const;
  void silence_is_over() const;
  // Logs, once for all channels, that a message of the server was damaged.
  void warn_of_damage() const;

  // Connects, sends the greeting, and authenticates both sides. Returns a descriptor registered in *fds, or -errno with
  // the reason in *status.
  int open(Status* status, wire::HelloReply* reply = nullptr, std::span<int> passed = {},
           uint64_t timeout_ns = kDialTimeoutNs) const;

 private:
  int greet(int fd, uint64_t deadline_ns, wire::HelloReply* reply, std::span<int> passed, Status* status) const;
};

}  // namespace farside::transport
