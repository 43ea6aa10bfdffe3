// One run of fibers: its workers and their threads. Created and destroyed by farside_fiber_run.
#pragma once
#include <pthread.h>

#include <memory>

#include "base/near.h"
#include "fiber/runtime.h"
#include "fiber/worker.h"

namespace farside::fibers {

class Run : public NearObject {
 public:
  Run(unsigned workers, size_t stack_bytes, const Hooks& hooks);

  // Runs function(arg) as the first fiber and returns when all fibers have ended: 0 or -errno.
  int run(void (*function)(void*), void* arg);

 private:
  int start_threads();

  Runtime runtime_;
  std::unique_ptr<Worker> workers_[Runtime::kMaxWorkers];
  pthread_t threads_[Runtime::kMaxWorkers] = {};
  unsigned threads_started_ = 0;
};

}  // namespace farside::fibers
