// Handler mode: faults come as userfaultfd messages and are served by a thread of ours instead of the faulting thread.
// It covers what signals cannot: kernel code that touches far memory in system calls, processes whose signals are
// locked down. It costs a wake-up per fault.
#pragma once
#include <pthread.h>

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
  static void* thread_main(void* self);
  void run();
  void serve(const uffd_msg& message);

  Pager& pager_;
  pthread_t thread_{};
  bool running_ = false;
  int stop_pipe_[2] = {-1, -1};
};

}  // namespace farside::pager
