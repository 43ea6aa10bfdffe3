// The options of farside serve.
#pragma once
#include <string>

#include "cli/server_tokens.h"
#include "cli/tls_options.h"
#include "command/command.h"
#include "server/server.h"

namespace farside::cli {

inline constexpr double kGraceSeconds = 30;
inline constexpr double kOffloadSeconds = 20, kOffloadCpuSeconds = 10;  // of one call

struct ServeArguments {
  std::string memory, overflow, listen, unix_path, quota, metrics, pool, address, zone;
  TokenFiles tokens;
  std::string log = "info", log_format = "text", compress = "off";
  unsigned workers = 1;
  double grace = kGraceSeconds;
  bool controller = false;
  bool offload = false;
  std::string offload_memory = "256M", offload_code = "64M";
  unsigned offload_processes = server::CallConfig().max_processes;
  double offload_seconds = kOffloadSeconds, offload_cpu = kOffloadCpuSeconds;
  TlsArguments tls;
  std::string ucx;
  // The scheme of its addresses, and that of a controller's.
  const char* scheme() const { return tls.files.certificate.empty() ? "tcp://" : "tls://"; }
  const char* pool_scheme() const { return tls.files.certificate.empty() ? "pool://" : "pool+tls://"; }
};

// Adds the options, which set *to, and the help to farside serve.
void add_serve_options(Command& command, ServeArguments* to);

}  // namespace farside::cli
