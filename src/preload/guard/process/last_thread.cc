#include "preload/guard/process/last_thread.h"

#include <sys/syscall.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/clock.h"
#include "base/os.h"
#include "base/service_thread.h"

namespace farside::preload {
namespace {

std::atomic<int> g_status{0};

// The first thread stays a zombie until all others have ended. It has no memory any more.
bool first_thread_has_ended() {
  char byte = 0, copy;
  iovec from = {&byte, 1}, to = {&copy, 1};
  return os::call(SYS_process_vm_readv, os::getpid(), &to, 1, &from, 1, 0) == -ESRCH;
}

// The number is compared twice: a thread of Farside may begin or end meanwhile, but then another thread of the program
// starts or awaits it.
bool others_are_farsides() {
  int threads = os::thread_count();
  return threads == static_cast<int>(ServiceThread::count_alive()) + 1 && os::thread_count() == threads;
}

}  // namespace

void note_thread_end(int status) { g_status.store(status); }

bool is_last_thread() {
  bool is_first = os::gettid() == os::getpid();
  return os::thread_count() == (!is_first && first_thread_has_ended() ? 2 : 1);
}

bool program_has_ended(int* status) {
  constexpr uint64_t kPauseNs = 20'000'000;
  static uint64_t looked_ns = 0;  // of the one evictor that calls this
  uint64_t now = now_ns();
  if (now - looked_ns < kPauseNs) return false;
  looked_ns = now;
  if (!first_thread_has_ended() || !others_are_farsides()) return false;
  *status = g_status.load();
  return true;
}

}  // namespace farside::preload
