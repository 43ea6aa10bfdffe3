// The settings of TLS connections: certificate, key, and the authorities that are trusted. TLS 1.3 only. Ordinary code;
// they are immutable and thread-safe once they were made.
//
// Nothing of this layer is linked into the preload library: OpenSSL is not loaded into the programs of a run.
#pragma once
#include <memory>
#include <string>

#include "base/status.h"

struct ssl_ctx_st;

namespace farside::tls {

// PEM files, as the keys of --tls name them. "": none.
struct Files {
  std::string certificate;  // its chain may follow it
  std::string key;
  std::string authorities;  // "": those that the system trusts
};

class Credentials {
 public:
  // With verify_clients, clients must present a certificate of one of the authorities.
  static Result<std::shared_ptr<const Credentials>> for_server(const Files& files, bool verify_clients);
  // The certificate and the key may be left out: the client then presents none.
  static Result<std::shared_ptr<const Credentials>> for_client(const Files& files);
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  ssl_ctx_st* get() const { return credentials_; }

 private:
  explicit Credentials(ssl_ctx_st* credentials) : credentials_(credentials) {}
  Status load(const Files& files);
  Status load_identity(const Files& files);
  Status load_authorities(const Files& files);

  ssl_ctx_st* const credentials_;
};

}  // namespace farside::tls
