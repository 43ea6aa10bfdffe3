#include "tls/credentials.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cstring>

namespace farside::tls {
namespace {

// The reason of the last failure of OpenSSL on this thread.
const char* last_reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason ? reason : "unknown";
}

// OpenSSL's reason would be about its own layers of files.
Status check_readable(const char* option, const std::string& path) {
  if (access(path.c_str(), R_OK) == 0) return {};
  return Status::error(errno, "cannot read the file of {}, {}: {}", option, path, strerror(errno));
}

}  // namespace

Credentials::~Credentials() { SSL_CTX_free(credentials_); }

Result<std::shared_ptr<const Credentials>> Credentials::for_server(const Files& files, bool verify_clients) {
  if (files.certificate.empty())
    return Status::error(EINVAL, "a server needs a certificate for TLS; give --tls cert=FILE,key=FILE");
  std::shared_ptr<Credentials> credentials(new Credentials(SSL_CTX_new(TLS_server_method())));
  if (Status loaded = credentials->load(files); !loaded.ok()) return loaded;
  SSL_CTX_set_num_tickets(credentials->get(), 0);  // clients do not resume
  if (verify_clients) {
    SSL_CTX_set_verify(credentials->get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return std::shared_ptr<const Credentials>(std::move(credentials));
}

Result<std::shared_ptr<const Credentials>> Credentials::for_client(const Files& files) {
  std::shared_ptr<Credentials> credentials(new Credentials(SSL_CTX_new(TLS_client_method())));
  if (Status loaded = credentials->load(files); !loaded.ok()) return loaded;
  SSL_CTX_set_verify(credentials->get(), SSL_VERIFY_PEER, nullptr);
  return std::shared_ptr<const Credentials>(std::move(credentials));
}

Status Credentials::load(const Files& files) {
  if (!credentials_) return Status::error(ENOMEM, "OpenSSL cannot be used: {}", last_reason());
  SSL_CTX_set_min_proto_version(credentials_, TLS1_3_VERSION);
  SSL_CTX_set_default_passwd_cb(credentials_,
                                [](char*, int, int, void*) { return 0; });  // else OpenSSL asks the terminal
  SSL_CTX_set_mode(credentials_,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  Status identity = load_identity(files);
  return identity.ok() ? load_authorities(files) : identity;
}

Status Credentials::load_identity(const Files& files) {
  if (files.certificate.empty() != files.key.empty())
    return Status::error(EINVAL, "--tls cert and --tls key belong together; give both or neither");
  if (files.certificate.empty()) return {};
  if (Status s = check_readable("--tls cert", files.certificate); !s.ok()) return s;
  if (Status s = check_readable("--tls key", files.key); !s.ok()) return s;
  if (SSL_CTX_use_certificate_chain_file(credentials_, files.certificate.c_str()) != 1)
    return Status::error(EINVAL, "--tls cert={} has no usable certificate in PEM form: {}", files.certificate,
                         last_reason());
  if (SSL_CTX_use_PrivateKey_file(credentials_, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return Status::error(EINVAL, "--tls key={} has no private key of {} in PEM form: {}", files.key, files.certificate,
                         last_reason());
  return {};
}

Status Credentials::load_authorities(const Files& files) {
  if (files.authorities.empty()) {
    SSL_CTX_set_default_verify_paths(credentials_);
    return {};
  }
  if (Status s = check_readable("--tls ca", files.authorities); !s.ok()) return s;
  if (SSL_CTX_load_verify_file(credentials_, files.authorities.c_str()) == 1) return {};
  return Status::error(EINVAL, "--tls ca={} has no usable certificates in PEM form: {}", files.authorities,
                       last_reason());
}

}  // namespace farside::tls
