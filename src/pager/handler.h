// Handler mode: one thread of Farside reads faults as userfaultfd messages and serves them. It covers what signal mode
// cannot: kernel code that touches far memory in a system call, and processes in which SIGBUS cannot be handled. It
// costs a wake-up of a thread for each fault. A message may be outdated when it is served
// (docs/internals/page_states.md).
#pragma once
#include "base/service_thread.h"
#include "pager/pager.h"

namespace farside::pager {

class FaultHandler : public NearObject {
 public:
  explicit FaultHandler(Pager& pager) : pager_(pager) {}
  ~FaultHandler() { stop(); }

  Status start();
  void stop();
  bool owns_fd(int fd) const { return fd == stop_pipe_[0] || fd == stop_pipe_[1]; }

 private:
  void run();
  void serve(const uffd_msg& message);

  Pager& pager_;
  ServiceThread thread_;
  bool running_ = false;
  int stop_pipe_[2] = {-1, -1};
};

}  // namespace farside::pager
