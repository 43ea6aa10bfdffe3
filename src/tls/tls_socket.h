// One TLS connection over a non-blocking socket. Neither side waits in it: what cannot continue returns -EAGAIN, and is
// called again when the socket is readable or writable. Ordinary code; used by one thread at a time, which blocks
// SIGPIPE. The owner of the socket closes it, after the stream was destroyed.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "tls/credentials.h"

struct ssl_st;

namespace farside::tls {

class TlsSocket {
 public:
  // The server's end. nullptr: out of memory.
  static std::unique_ptr<TlsSocket> accept(const Credentials& credentials, int fd);
  // The client's end: the server's certificate must be of `host`, a name or a numeric address. nullptr: out of
  // memory, or the host is neither.
  static std::unique_ptr<TlsSocket> connect(const Credentials& credentials, int fd, const std::string& host);
  ~TlsSocket();  // also ends the data, if the connection has not failed
  TlsSocket(const TlsSocket&) = delete;
  TlsSocket& operator=(const TlsSocket&) = delete;

  // 0 when the handshake is complete, -EAGAIN, or an error with the reason in failure(): -EPROTO; -EPROTONOSUPPORT
  // where the peer does not speak TLS; -ECONNRESET where the connection ended. receive() and send() continue the
  // handshake, too.
  int handshake();

  // The number of bytes; 0 when the peer has ended its data; -EAGAIN; -ECONNRESET where the connection was cut without
  // such an end; others as above.
  ssize_t receive(void* buffer, size_t bytes);
  // The number of bytes accepted, at most one record; or as receive(). After -EAGAIN the same bytes are sent next.
  ssize_t send(const void* data, size_t bytes);
  // Ends the data that this side sends. 0, or -EAGAIN: it is to be called again.
  int end();

  bool has_received() const;  // decrypted data that receive() did not have the room to return
  bool wants_write() const;   // the last call needs a writable socket to continue
  const char* failure() const { return failure_.text(); }

 private:
  explicit TlsSocket(ssl_st* ssl) : ssl_(ssl) {}
  static std::unique_ptr<TlsSocket> over(const Credentials& credentials, int fd);
  int failed(int result);
  Status reason() const;

  ssl_st* const ssl_;
  bool has_failed_ = false;
  bool ended_ = false;
  Status failure_;
};

}  // namespace farside::tls
