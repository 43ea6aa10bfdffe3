#include "launch/embedded_server.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/os.h"

namespace farside {

Result<std::unique_ptr<PrivateDirectory>> PrivateDirectory::create() {
  const char* parent = getenv("TMPDIR");
  std::string name = fmt::format("{}/farside-XXXXXX", parent && *parent ? parent : "/tmp");
  if (mkdtemp(name.data()) && chmod(name.c_str(), 0711) == 0)
    return std::unique_ptr<PrivateDirectory>(new PrivateDirectory(name));
  return Status::error(errno, "cannot create the directory {}: {}; set TMPDIR to a writable directory", name,
                       strerror(errno));
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string PrivateDirectory::secret_file(const char* name) const {
  return fmt::format("{}/{}-{:016x}", path_, name, os::random_u64());
}

Result<std::unique_ptr<EmbeddedServer>> EmbeddedServer::start(const PrivateDirectory& directory, uint64_t memory) {
  std::unique_ptr<EmbeddedServer> embedded(new EmbeddedServer);
  embedded->socket_ = directory.secret_file("socket");
  embedded->token_ = fmt::format("{:016x}{:016x}", os::random_u64(), os::random_u64());
  server::ServerConfig config;
  config.memory = memory;
  config.unix_path = directory.file("listening");
  config.unix_for_all_users = true;
  config.token = embedded->token_;
  auto started = server::Server::start(config);
  if (!started.ok()) return started.status();
  embedded->server_ = std::move(*started);
  // /proc/net/unix shows everybody the name under which a socket was bound.
  if (rename(config.unix_path.c_str(), embedded->socket_.c_str()) != 0)
    return Status::error(errno, "cannot rename {}: {}", config.unix_path, strerror(errno));
  return embedded;
}

uint64_t EmbeddedServer::clients() const { return server_->stats().clients; }

}  // namespace farside
