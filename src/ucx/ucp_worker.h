// UCX's context and worker of this process, and connections to workers of others. Used by one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ucx/library.h"

namespace farside::ucx {

class UcpWorker {
 public:
  // for_remote_access: memory of this process will be shared. It is then not pinned: a page that is discarded must be
  // gone for the network card, too, so a card takes part only if it can fault pages in on demand.
  static Result<std::unique_ptr<UcpWorker>> start(const char* transports, bool for_remote_access);
  ~UcpWorker();
  UcpWorker(const UcpWorker&) = delete;
  UcpWorker& operator=(const UcpWorker&) = delete;

  const Library& ucp() const { return ucp_; }
  ucp_context_h context() const { return context_; }
  ucp_worker_h get() const { return worker_; }
  std::vector<std::byte> address() const;

  unsigned progress() { return ucp_.ucp_worker_progress(worker_); }
  int event_fd() const { return event_fd_; }
  // True: event_fd() becomes readable with the next event. False: there are events already.
  bool arm() { return ucp_.ucp_worker_arm(worker_) == UCS_OK; }
  const char* text_of(ucs_status_t status) const { return ucp_.ucs_status_string(status); }

 private:
  explicit UcpWorker(const Library& ucp) : ucp_(ucp) {}
  ucs_status_t open();

  const Library& ucp_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

// What UCX finds, as lines for survey() in helper.h.
Result<std::string> describe(const char* transports);

}  // namespace farside::ucx
