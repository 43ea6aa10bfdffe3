#include "fiber/run.h"

#include <cerrno>

namespace farside::fibers {
namespace {

void* thread_main(void* worker) {
  static_cast<Worker*>(worker)->work();
  return nullptr;
}

}  // namespace

Run::Run(unsigned workers, size_t stack_bytes, const Hooks& hooks)
    : runtime_(workers, stack_bytes, hooks, {fiber_main, make_ready}) {
  for (unsigned i = 0; i < workers; i++) workers_[i] = std::make_unique<Worker>(runtime_, i);
}

int Run::run(void (*function)(void*), void* arg) {
  if (int error = runtime_.open()) return error;
  Fiber* first = runtime_.make_fiber(function, arg);
  if (!first) return -ENOMEM;
  first->join_state = Fiber::kDetached;
  int error = start_threads();
  if (error == 0) {
    workers_[0]->ready().push(first);
    workers_[0]->work();
  } else {
    finished(&first->context);
    runtime_.end();
  }
  for (unsigned i = 1; i <= threads_started_; i++) pthread_join(threads_[i], nullptr);
  return error;
}

int Run::start_threads() {
  for (unsigned i = 1; i < runtime_.count(); i++) {
    if (int error = pthread_create(&threads_[i], nullptr, thread_main, workers_[i].get())) return -error;
    threads_started_ = i;
  }
  return 0;
}

}  // namespace farside::fibers
