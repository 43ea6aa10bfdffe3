// The bytes of one connection: a socket, plain or with TLS, and the output that it has not accepted yet. Over a Unix
// socket both sides also pass descriptors: the client a new connection, the server the memory of its region. It never
// blocks. Used by one thread at a time.
#pragma once
#include <sys/uio.h>

#include <memory>
#include <span>

#include "base/buffer.h"
#include "server/counters.h"
#include "server/regions/region.h"
#include "tls/tls_socket.h"
#include "wire/codec.h"

namespace farside::server {

class ClientSocket {
 public:
  // tls: null for a plain connection.
  ClientSocket(int fd, bool is_unix, const tls::Credentials* tls, Counters* counters);
  ~ClientSocket() { close(); }
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  int fd() const { return fd_; }
  bool is_unix() const { return is_unix_; }
  bool has_tls() const { return tls_ != nullptr; }
  // Nothing is received or sent any more.
  bool is_over() const { return is_over_; }
  // The connection failed or this side closes it: it is not the client's end.
  bool is_broken() const { return is_broken_; }
  void end() { is_over_ = true; }
  void note_broken() { is_broken_ = true; }
  void close();

  // Counts what is received and sent from now on for this client, too.
  void count_for(Region::Client* client) { client_ = client; }
  uint64_t received() const { return received_; }
  uint64_t sent() const { return sent_; }

  // The number of bytes, or as recv(); -EPROTO, see tls_failure(); -EPROTONOSUPPORT: the client does not speak TLS.
  // keeps_passed: whether a connection that the client passes is kept, for take_passed().
  ssize_t receive(std::byte* to, size_t bytes, bool keeps_passed);
  // Ends a connection whose last receive() failed or returned 0.
  void end_of_input(bool failed);
  bool has_decrypted() const { return tls_ && tls_->has_received(); }  // which no event reports
  const char* tls_failure() const { return tls_->failure(); }
  void drop_tls() { tls_.reset(); }
  // Whether the client has closed its side.
  bool is_gone() const;
  void make_blocking();

  Buffer& output() { return output_; }
  const Buffer& output() const { return output_; }
  bool wants_output() const { return !output_.empty() || (tls_ && tls_->wants_write()); }
  // Sends what is in the output. False: not all of it was accepted, or the connection broke.
  bool flush();
  // Passes descriptors with what is in the output, with the next send_passed().
  void pass(std::vector<int> fds) { passing_ = std::move(fds); }
  void send_passed();
  // Sends a reply from the memory of a region, which may be discarded later: what is not accepted at once is copied
  // into the output. The header's checksum is added. False: nothing was sent.
  bool send_in_place(wire::FrameHeader header, std::span<const iovec> pieces);

  // Accepts the connection that arrived with a request. False: none did.
  bool accept_passed();
  // A connection that was accepted so, or -1. The caller closes it.
  int take_accepted();

 private:
  ssize_t send_some();
  void note_received(size_t bytes);
  void note_sent(size_t bytes);
  bool copy_to_output(const iovec* pieces, size_t bytes);

  int fd_;
  const bool is_unix_;
  std::unique_ptr<tls::TlsSocket> tls_;  // null: plain
  Counters* const counters_;
  Region::Client* client_ = nullptr;
  uint64_t received_ = 0, sent_ = 0;
  bool is_over_ = false, is_broken_ = false;
  int passed_fd_ = -1;        // arrived, its request was not executed yet
  int accepted_fd_ = -1;      // for take_accepted()
  std::vector<int> passing_;  // for send_passed(), which does not close them
  Buffer output_;
};

}  // namespace farside::server
