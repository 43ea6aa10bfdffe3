// Where the far memory of a stress run is: this process's own memory, a memory server in this process, or two servers
// in processes of their own, one of which dies on the way.
#pragma once
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "pager/test_support.h"
#include "server/server.h"

namespace farside::stress {

// Far memory that fork copies by itself, because it is private memory of this process.
class ForkableStore : public pager::LocalStore {
 public:
  using LocalStore::LocalStore;
  Result<remote::ForkTicket> prepare_fork() override { return remote::ForkTicket(); }
  Status adopt_in_child(remote::ForkTicket) override { return {}; }
};

class FarSide {
 public:
  // transport: direct, copy (both without a server), shm, tcp, replicas (over tcp) or shm_replicas (the first one shm).
  FarSide(const std::string& transport, uint64_t region_bytes, uint64_t server_bytes);
  ~FarSide();
  remote::RemoteStore* store() { return store_; }  // given away: the pager fixture deletes it
  // Kills one of the replicas; does nothing where there are none.
  void kill_one(uint64_t which);
  // The server still holds regions of clients that are gone.
  bool leaks();

 private:
  std::string start_server(const std::string& transport, uint64_t server_bytes);
  std::string start_server_process(const std::string& transport, uint64_t server_bytes);
  std::string start_servers(const std::string& transport, uint64_t server_bytes);
  std::string directory_;
  std::vector<pid_t> processes_;
  std::unique_ptr<server::Server> server_;
  remote::RemoteStore* store_ = nullptr;
};

}  // namespace farside::stress
