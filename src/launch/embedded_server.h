// The memory server of one run: it runs in the launcher's process and listens on a Unix socket in a private directory.
#pragma once
#include <memory>
#include <string>

#include "base/status.h"
#include "server/server.h"

namespace farside {

// A directory under $TMPDIR or /tmp that only this user can list. Others reach a file whose name they know, such as a
// process of the run after a change of its user. The directory is removed with its contents; if this process is killed,
// the next one that creates a directory there does so. A lock shows which are in use.
class PrivateDirectory {
 public:
  static Result<std::unique_ptr<PrivateDirectory>> create();
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }
  // Where a socket is bound. The directory is closed to others from now on, until hide_socket().
  std::string socket_file(const char* name) const;
  // A file whose name nobody can guess.
  std::string secret_file(const char* name) const;
  // Gives the socket a secret name and returns it: /proc/net/unix shows everybody that under which it was bound. Then
  // others can reach files again.
  Result<std::string> hide_socket(const std::string& path) const;

 private:
  PrivateDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;  // descriptor of the locked file in it
};

class EmbeddedServer {
 public:
  // config: its memory. offload: it executes functions of the program, and compresses nothing.
  static Result<std::unique_ptr<EmbeddedServer>> start(const PrivateDirectory& directory, server::ServerConfig config,
                                                       bool offload);
  std::string address() const { return "shm://" + socket_; }
  const std::string& token() const { return token_; }
  uint64_t clients() const;
  // The part of its memory that is reserved, and all of it; what clients have stored, in bytes, and the memory that it
  // uses: less, where pages are compressed or in the overflow file; and the pages there.
  struct Use {
    double filled;
    uint64_t capacity, stored, used, overflow;
  };
  Use use() const;
  void append_metrics(Exposition* out) const { server_->append_metrics(out); }

 private:
  EmbeddedServer() = default;
  std::string socket_;
  std::string token_;
  std::unique_ptr<server::Server> server_;
};

}  // namespace farside
