#include "launch/embedded_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/random.h"
#include "launch/installation.h"

namespace farside {
namespace {

constexpr char kPrefix[] = "farside-run-";
constexpr mode_t kMode = 0711, kClosed = 0700;  // closed: while a socket has a name that others know
constexpr char kLock[] = "lock";

// The file has its name only after it is locked, so a lock that can be taken belongs to a process that has ended.
int make_lock(const std::string& directory) {
  std::string name = fmt::format("{}/{}", directory, kLock), unlocked = name + ".new";
  int fd = open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && rename(unlocked.c_str(), name.c_str()) == 0) return fd;
  close(fd);
  return -1;
}

// Of this user, made by create(), and not in use.
bool is_abandoned(const char* path) {
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return false;
  struct stat info = {};
  bool own = fstat(directory, &info) == 0 && info.st_uid == geteuid() &&
             ((info.st_mode & 0777) == kMode || (info.st_mode & 0777) == kClosed);
  int lock = own ? openat(directory, kLock, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
  bool abandoned = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0;
  for (int fd : {lock, directory}) {
    if (fd >= 0) close(fd);
  }
  return abandoned;
}

void remove_abandoned(const std::string& parent) {
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    bool candidate = at->path().filename().string().starts_with(kPrefix);
    if (candidate && is_abandoned(at->path().c_str())) std::filesystem::remove_all(at->path(), ignored);
  }
}

}  // namespace

Result<std::unique_ptr<PrivateDirectory>> PrivateDirectory::create() {
  const char* variable = getenv("TMPDIR");
  std::string parent = variable && *variable ? variable : "/tmp";
  remove_abandoned(parent);
  std::string name = fmt::format("{}/{}XXXXXX", parent, kPrefix);
  int lock = mkdtemp(name.data()) && chmod(name.c_str(), kMode) == 0 ? make_lock(name) : -1;
  if (lock >= 0) return std::unique_ptr<PrivateDirectory>(new PrivateDirectory(name, lock));
  return Status::error(errno, "cannot create the directory {}: {}; set TMPDIR to a writable directory", name,
                       strerror(errno));
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  close(lock_);
}

std::string PrivateDirectory::secret_file(const char* name) const {
  return fmt::format("{}/{}-{:016x}", path_, name, random_u64());
}

std::string PrivateDirectory::socket_file(const char* name) const {
  chmod(path_.c_str(), kClosed);  // of this user: it cannot fail
  return file(name);
}

Result<std::string> PrivateDirectory::hide_socket(const std::string& path) const {
  std::string secret = secret_file("socket");
  if (rename(path.c_str(), secret.c_str()) == 0 && chmod(path_.c_str(), kMode) == 0) return secret;
  return Status::error(errno, "cannot rename {}: {}", path, strerror(errno));
}

Result<std::unique_ptr<EmbeddedServer>> EmbeddedServer::start(const PrivateDirectory& directory,
                                                              server::ServerConfig config, bool offload) {
  std::unique_ptr<EmbeddedServer> embedded(new EmbeddedServer);
  embedded->token_ = fmt::format("{:016x}{:016x}", random_u64(), random_u64());
  config.unix_path = directory.socket_file("listening");
  config.unix_for_all_users = true;
  config.token = embedded->token_;
  if (offload) {
    config.compress = Compression::kOff;
    auto installation = find_installation();
    if (!installation.ok()) return installation.status();
    config.calls.host_program = installation->offload_host();
  }
  auto started = server::Server::start(config);
  if (!started.ok()) return started.status();
  embedded->server_ = std::move(*started);
  auto hidden = directory.hide_socket(config.unix_path);
  if (!hidden.ok()) return hidden.status();
  embedded->socket_ = *hidden;
  return embedded;
}

uint64_t EmbeddedServer::clients() const { return server_->stats().clients; }

EmbeddedServer::Use EmbeddedServer::use() const {
  server::ServerStats now = server_->stats();
  auto reserved = static_cast<double>(now.reserved_bytes), capacity = static_cast<double>(now.capacity_bytes);
  return {capacity == 0 ? 0 : reserved / capacity, now.capacity_bytes, now.stored_bytes, now.used_bytes,
          now.overflow_bytes};
}

}  // namespace farside
