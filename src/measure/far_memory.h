// Far memory in the measuring process: a pager with its own SIGBUS handler, so that paging is measured without the
// preload library.
#pragma once
#include <signal.h>

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "measure/access.h"
#include "pager/handler.h"
#include "pager/pager.h"

namespace farside {

struct FarMemoryConfig {
  std::string address, token;  // one memory server, or several separated by commas
  uint64_t bytes = 0;          // of far memory
  uint64_t local = 0;          // bytes that may be near
  pager::Delivery delivery = pager::Delivery::kSignal;
  unsigned evictors = 1;
  WriteBack writeback = WriteBack::kPage;
  HugePages huge = HugePages::kAuto;
  unsigned replicas = 1;
  std::string ucx_relay = "";  // the socket of the relay for ucx:// addresses
  uint64_t more_bytes = 0;     // further far memory, which the caller reserves from the pager
  // Called with the pager before its threads start; called before the pager is destroyed.
  std::function<void(pager::Pager&)> opened = [](pager::Pager&) {};
  std::function<void()> closing = [] {};
};

// At most one per process, because it owns SIGBUS. Threads that used the memory call Arena::leave_thread before they
// end.
class FarMemory {
 public:
  static Result<std::unique_ptr<FarMemory>> create(const FarMemoryConfig& config);
  ~FarMemory();
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  Arena arena() const;
  // The same as the inline guard of include/farside/farside.h and the hint behind it.
  void hint_read(const std::byte* address, uint64_t bytes) {
    auto at = reinterpret_cast<uint64_t>(address);
    if (!pager_->table().word(at).is(pager::PageState::kNear)) pager_->paging().hint({.address = at, .bytes = bytes});
  }
  pager::Stats stats() { return pager_->stats(); }
  pager::Pager& pager() { return *pager_; }

 private:
  FarMemory() = default;
  Status open(const FarMemoryConfig& config);
  Status start_handler();

  std::function<void()> closing_ = [] {};
  std::unique_ptr<remote::RemoteStore> store_;
  std::unique_ptr<pager::Pager> pager_;
  std::unique_ptr<pager::FaultHandler> handler_;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0;
  struct sigaction old_ = {};
};

}  // namespace farside
