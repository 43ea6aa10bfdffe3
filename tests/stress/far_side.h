// The far memory of a stress run: in this process's own memory, on a memory server in this process, or on two servers
// in child processes, one of which is killed half-way.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "pager/test_support.h"
#include "server/server.h"
#include "ucx/helper.h"

namespace farside::stress {

// Far memory that fork copies, because it is private memory of this process.
class ForkableStore : public pager::LocalStore {
 public:
  using LocalStore::LocalStore;
  Result<remote::ForkTicket> prepare_fork() override { return remote::ForkTicket(); }
  Status adopt_in_child(remote::ForkTicket) override { return {}; }
};

class FarSide {
 public:
  // transport: direct, copy (both without a server), shm, tcp, ucx, compressed_shm, compressed_tcp (where pages are
  // compressed after 1.2 ms without an access, and by zstd after 72 ms), overflow_shm (with 16 MiB of RAM, the rest is
  // in a file), file, replicas (two over tcp) or shm_replicas (shm and tcp). Forks the servers of replicas, so
  // construct it before threads exist. Failures end the process.
  FarSide(const std::string& transport, uint64_t region_bytes, uint64_t server_bytes);
  ~FarSide();
  remote::RemoteStore* store() { return store_; }  // the caller (the pager fixture) deletes it
  // Kills one of the replicas: number `which` modulo their number. No effect without replicas.
  void kill_one(uint64_t which);
  // Whether the server in this process has compressed pages by both codecs, as far as calls have seen.
  bool has_compressed();
  // Whether pages are in its file now.
  bool overflows();
  // True if the server in this process still has regions 2 s after its clients have closed them.
  bool leaks();

 private:
  std::string start_server(const std::string& transport, uint64_t server_bytes, bool compress = false,
                           bool overflows = false);
  std::string start_server_process(const std::string& transport, uint64_t server_bytes);
  std::string start_servers(const std::string& transport, uint64_t server_bytes);
  void start_ucx_relay();
  std::string directory_;
  std::vector<pid_t> processes_;
  std::unique_ptr<server::Server> server_;
  ucx::Helper ucx_relay_;
  remote::RemoteStore* store_ = nullptr;
  bool has_lz4_ = false, has_zstd_ = false, has_overflow_ = false;
};

}  // namespace farside::stress
