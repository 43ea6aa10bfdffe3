#include "far_side.h"

#include <stdlib.h>
#include <unistd.h>

namespace farside::stress {
namespace {
constexpr const char* kToken = "stress";
}

FarSide::FarSide(const std::string& transport, uint64_t region_bytes, uint64_t server_bytes) {
  if (transport == "direct" || transport == "copy") {
    store_ = new ForkableStore(region_bytes, server_bytes, transport == "direct");
    return;
  }
  start_server(transport, server_bytes);
  Result<remote::RemoteStore*> store = remote::RemoteStore::connect({address_.c_str(), kToken, region_bytes});
  if (!store.ok()) die("{}", store.status().text());
  store_ = *store;
}

void FarSide::start_server(const std::string& transport, uint64_t server_bytes) {
  char pattern[] = "/tmp/farside-stress-XXXXXX";
  if (!mkdtemp(pattern)) die("cannot make a directory in /tmp");
  directory_ = pattern;
  server::ServerConfig config;
  config.memory = server_bytes;
  config.token = kToken;
  if (transport == "tcp") config.listen = "127.0.0.1:0";
  else config.unix_path = directory_ + "/socket";
  Result<std::unique_ptr<server::Server>> server = server::Server::start(config);
  if (!server.ok()) die("{}", server.status().text());
  server_ = std::move(*server);
  address_ =
      transport == "tcp" ? "tcp://127.0.0.1:" + std::to_string(server_->tcp_port()) : "shm://" + config.unix_path;
}

FarSide::~FarSide() {
  server_.reset();
  if (directory_.empty()) return;
  unlink((directory_ + "/socket").c_str());
  rmdir(directory_.c_str());
}

bool FarSide::leaks() {
  if (!server_) return false;
  for (int i = 0; i < 200 && server_->stats().regions > 0; i++)
    usleep(10000);  // it sees closed connections a little later
  return server_->stats().regions > 0;
}

}  // namespace farside::stress
