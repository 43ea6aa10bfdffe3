#include "preload/trace/trace_reads.h"

#include <sys/syscall.h>
#include <sys/uio.h>

#include <atomic>

#include "base/os.h"

namespace farside::preload {
namespace {
std::atomic<uint32_t> g_pid{0};
}  // namespace

void forget_process() { g_pid.store(0); }

uint32_t traced_process() {
  if (g_pid.load(std::memory_order_relaxed) == 0)
    g_pid.store(static_cast<uint32_t>(os::getpid()), std::memory_order_relaxed);
  return g_pid.load(std::memory_order_relaxed);
}

size_t read_safely(uint64_t address, void* to, size_t bytes) {
  iovec local = {to, bytes}, remote = {reinterpret_cast<void*>(address), bytes};
  long got = os::call(SYS_process_vm_readv, traced_process(), &local, 1, &remote, 1, 0);
  return got < 0 ? 0 : static_cast<size_t>(got);
}

}  // namespace farside::preload
