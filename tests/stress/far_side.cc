#include "far_side.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os.h"
#include "remote/connect.h"
#include "server/listen.h"

namespace farside::stress {
namespace {
constexpr const char* kToken = "stress";
const ucx::Settings kUcx = {FARSIDE_UCX_HELPER, "tcp"};
}  // namespace

FarSide::FarSide(const std::string& transport, uint64_t region_bytes, uint64_t server_bytes) {
  if (transport == "direct" || transport == "copy") {
    store_ = new ForkableStore(region_bytes, server_bytes, transport == "direct");
    return;
  }
  char pattern[] = "/tmp/farside-stress-XXXXXX";
  if (!mkdtemp(pattern)) die("cannot make a directory in /tmp");
  directory_ = pattern;
  std::string address = start_servers(transport, server_bytes);
  unsigned replicas = processes_.empty() ? 1 : 2;
  if (transport == "ucx") start_ucx_relay();
  std::string relay = directory_ + "/relay";
  auto store = remote::connect_store({.address = address.c_str(),
                                      .token = kToken,
                                      .region_bytes = region_bytes,
                                      .replicas = replicas,
                                      .relays = {.ucx = relay.c_str()}});
  if (!store.ok()) die("{}", store.status().text());
  store_ = store->release();
}

std::string FarSide::start_servers(const std::string& transport, uint64_t server_bytes) {
  if (transport == "file") return "file:" + directory_ + "?crypt=yes&size=" + std::to_string(server_bytes);
  if (transport == "shm" || transport == "tcp" || transport == "ucx") return start_server(transport, server_bytes);
  if (transport == "compressed_shm" || transport == "compressed_tcp")
    return start_server(transport.substr(sizeof "compressed_" - 1), server_bytes, true);
  if (transport == "overflow_shm") return start_server("shm", server_bytes, true, true);
  std::string first = start_server_process(transport == "replicas" ? "tcp" : "shm", server_bytes);
  return first + "," + start_server_process("tcp", server_bytes);
}

std::string FarSide::start_server(const std::string& transport, uint64_t server_bytes, bool compress, bool overflows) {
  server::ServerConfig config;
  config.memory = overflows ? wire::kSlabBytes : server_bytes;
  if (overflows) config.overflow = {"/tmp", server_bytes};
  config.token = kToken;
  if (transport == "shm") config.unix_path = directory_ + "/socket";
  else config.listen = "127.0.0.1:0";
  if (transport == "ucx") config.ucx = kUcx;
  if (compress) config.compress = Compression::kAuto;
  config.compress_epoch_ns = 300'000;
  Result<std::unique_ptr<server::Server>> server = server::Server::start(config);
  if (!server.ok()) die("{}", server.status().text());
  server_ = std::move(*server);
  if (transport == "shm") return "shm://" + config.unix_path;
  return transport + "://127.0.0.1:" + std::to_string(server_->tcp_port());
}

void FarSide::start_ucx_relay() {
  auto listener = server::listen_unix(directory_ + "/relay");
  if (!listener.ok()) die("{}", listener.status().text());
  Status started = ucx_relay_.start(kUcx, "relay", "-", *listener);
  os::close(*listener);
  if (started.ok()) started = ucx::wait_until_ready(&ucx_relay_, kUcx, 10'000);
  if (!started.ok()) die("{}", started.text());
}

// Called before this process has threads. The server sends its address through a pipe, and is killed when this process
// ends.
std::string FarSide::start_server_process(const std::string& transport, uint64_t server_bytes) {
  int fds[2];
  if (pipe(fds) < 0) die("cannot make a pipe");
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string address = start_server(transport, server_bytes);
    (void)!write(fds[1], address.data(), address.size());
    close(fds[1]);
    for (;;) pause();
  }
  processes_.push_back(pid);
  close(fds[1]);
  char address[200] = {};
  if (read(fds[0], address, sizeof address - 1) <= 0) die("a server did not start");
  close(fds[0]);
  return address;
}

void FarSide::kill_one(uint64_t which) {
  if (!processes_.empty()) kill(processes_[which % processes_.size()], SIGKILL);
}

FarSide::~FarSide() {
  server_.reset();
  for (pid_t pid : processes_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  if (directory_.empty()) return;
  for (const char* name : {"/socket", "/relay"}) unlink((directory_ + name).c_str());
  rmdir(directory_.c_str());
}

bool FarSide::has_compressed() {
  if (!server_) return false;
  server::ServerStats stats = server_->stats();
  has_lz4_ |= stats.compressed_bytes > stats.zstd_bytes;
  has_zstd_ |= stats.zstd_bytes > 0;
#ifdef FARSIDE_EXPENSIVE_CHECKS  // so slow is the packing thread that no page may stay cold until zstd has its turn
  return has_lz4_ || has_zstd_;
#else
  return has_lz4_ && has_zstd_;
#endif
}

// Pages return from the file: they may all have when the run ends.
bool FarSide::overflows() {
  has_overflow_ |= server_ && server_->stats().overflow_bytes > 0;
  return has_overflow_;
}

bool FarSide::leaks() {
  if (!server_) return false;
  for (int i = 0; i < 200 && server_->stats().regions > 0; i++)
    usleep(10000);  // the server notices closed connections a little later
  return server_->stats().regions > 0;
}

}  // namespace farside::stress
