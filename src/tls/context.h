// The settings of TLS connections: certificate, key, and the authorities that are trusted. TLS 1.3 only. Ordinary code;
// a context is immutable and thread-safe once it was made.
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

class Context {
 public:
  // With verify_clients, clients must present a certificate of one of the authorities.
  static Result<std::shared_ptr<const Context>> for_server(const Files& files, bool verify_clients);
  // The certificate and the key may be left out: the client then presents none.
  static Result<std::shared_ptr<const Context>> for_client(const Files& files);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit Context(ssl_ctx_st* context) : context_(context) {}
  Status load(const Files& files);
  Status load_identity(const Files& files);
  Status load_authorities(const Files& files);

  ssl_ctx_st* const context_;
};

}  // namespace farside::tls
