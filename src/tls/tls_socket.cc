#include "tls/tls_socket.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace farside::tls {
namespace {

bool is_numeric(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool expect_host(SSL* ssl, const std::string& host) {
  if (is_numeric(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  return SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 && SSL_set1_host(ssl, host.c_str()) == 1;
}

// What the peer sends is not TLS.
bool is_foreign(int reason) {
  return reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
         reason == SSL_R_HTTP_REQUEST || reason == SSL_R_BAD_PACKET_LENGTH;
}

// The peer does not accept this side's certificate.
bool is_refusal(int reason) {
  return reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED ||
         reason == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN || reason == SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE ||
         reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA;
}

}  // namespace

std::unique_ptr<TlsSocket> TlsSocket::over(const Credentials& credentials, int fd) {
  SSL* ssl = SSL_new(credentials.get());
  std::unique_ptr<TlsSocket> stream(ssl ? new TlsSocket(ssl) : nullptr);
  return ssl && SSL_set_fd(ssl, fd) == 1 ? std::move(stream) : nullptr;
}

std::unique_ptr<TlsSocket> TlsSocket::accept(const Credentials& credentials, int fd) {
  auto stream = over(credentials, fd);
  if (stream) SSL_set_accept_state(stream->ssl_);
  return stream;
}

std::unique_ptr<TlsSocket> TlsSocket::connect(const Credentials& credentials, int fd, const std::string& host) {
  auto stream = over(credentials, fd);
  if (!stream || !expect_host(stream->ssl_, host)) return nullptr;
  SSL_set_connect_state(stream->ssl_);
  return stream;
}

TlsSocket::~TlsSocket() {
  end();
  SSL_free(ssl_);
}

int TlsSocket::handshake() {
  ERR_clear_error();
  int r = SSL_do_handshake(ssl_);
  if (r == 1) return 0;
  r = failed(r);
  return r == 0 ? -ECONNRESET : r;
}

ssize_t TlsSocket::receive(void* buffer, size_t bytes) {
  ERR_clear_error();
  size_t received = 0;
  int r = SSL_read_ex(ssl_, buffer, bytes, &received);
  return r == 1 ? static_cast<ssize_t>(received) : failed(r);
}

ssize_t TlsSocket::send(const void* data, size_t bytes) {
  ERR_clear_error();
  size_t sent = 0;
  int r = SSL_write_ex(ssl_, data, bytes, &sent);
  return r == 1 ? static_cast<ssize_t>(sent) : failed(r);
}

int TlsSocket::end() {
  if (ended_ || has_failed_ || !SSL_is_init_finished(ssl_)) return 0;
  ERR_clear_error();
  int r = SSL_shutdown(ssl_);
  ended_ = r >= 0 || SSL_get_error(ssl_, r) != SSL_ERROR_WANT_WRITE;
  return ended_ ? 0 : -EAGAIN;
}

bool TlsSocket::has_received() const { return SSL_pending(ssl_) > 0; }
bool TlsSocket::wants_write() const { return SSL_want_write(ssl_); }

int TlsSocket::failed(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      has_failed_ = true;
      failure_ = Status::error(ECONNRESET, "the connection was cut");
      return -ECONNRESET;
    default:
      has_failed_ = true;
      failure_ = reason();
      return -failure_.code();
  }
}

Status TlsSocket::reason() const {
  unsigned long error = ERR_peek_error();
  int reason = ERR_GET_REASON(error);
  const char* text = ERR_reason_error_string(error);
  long verified = SSL_get_verify_result(ssl_);
  if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return Status::error(ECONNRESET, "the connection was cut");
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    return Status::error(EPROTO, "its certificate is not accepted ({}){}", X509_verify_cert_error_string(verified),
                         SSL_is_server(ssl_) ? "" : "; check --tls ca and --tls name");
  }
  if (reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED || reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
    return Status::error(EPROTO, "a client certificate is required; give --tls cert=FILE,key=FILE");
  if (is_refusal(reason)) return Status::error(EPROTO, "it does not accept the certificate of this side ({})", text);
  if (is_foreign(reason))
    return Status::error(EPROTONOSUPPORT, "it does not speak TLS{}",
                         SSL_is_server(ssl_) ? "" : "; start it with --tls cert=FILE,key=FILE");
  return Status::error(EPROTO, "{}", text ? text : "TLS failed");
}

}  // namespace farside::tls
