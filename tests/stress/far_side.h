// Where the far memory of a stress run is: this process's own memory, or a memory server in this process.
#pragma once
#include <memory>
#include <string>

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
  // transport: direct, copy (both without a server), shm or tcp.
  FarSide(const std::string& transport, uint64_t region_bytes, uint64_t server_bytes);
  ~FarSide();
  remote::RemoteStore* store() { return store_; }  // given away: the pager fixture deletes it
  // The server still holds regions of clients that are gone.
  bool leaks();

 private:
  void start_server(const std::string& transport, uint64_t server_bytes);
  std::string directory_, address_;
  std::unique_ptr<server::Server> server_;
  remote::RemoteStore* store_ = nullptr;
};

}  // namespace farside::stress
