#include "base/service_thread.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/bits.h"
#include "base/os.h"
#include "base/thread_storage.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FARSIDE_UNKNOWN_THREADS 1

// clone for a thread (flags, stack pointer, thread pointer, word to clear). The child pops its function and the
// argument from the stack, and ends when the function returns.
extern "C" long farside_clone_service(uint64_t flags, void* stack, void* storage, void* word);
asm(R"(
  .section farside_syscalls,"ax",@progbits
  .globl farside_clone_service
  .hidden farside_clone_service
  .type farside_clone_service,@function
farside_clone_service:
  movq %rdx, %r8
  movq %rcx, %r10
  xorl %edx, %edx
  movl $56, %eax
  syscall
  testq %rax, %rax
  jz 1f
  ret
1:
  xorl %ebp, %ebp
  popq %rax
  popq %rdi
  call *%rax
  xorl %edi, %edi
  movl $60, %eax
  syscall
  hlt
  .size farside_clone_service, .-farside_clone_service
  .previous
)");
static_assert(SYS_clone == 56 && SYS_exit == 60);
#endif

namespace farside {
namespace {

constexpr size_t kStackBytes = 512 * kKiB;

// The threads that run, by their ids; 0: free. An id stays a little longer than its thread.
constexpr size_t kMaxThreads = 16;
std::atomic<int> g_running[kMaxThreads];

void replace_running(int old_tid, int new_tid) {
  if (old_tid == new_tid) return;
  for (std::atomic<int>& task : g_running) {
    int expected = old_tid;
    if (task.compare_exchange_strong(expected, new_tid)) return;
  }
}

struct AllSignalsBlocked {
  AllSignalsBlocked() {
    constexpr os::SignalSet kAll = ~os::SignalSet{0};
    os::sigprocmask(SIG_SETMASK, &kAll, &before);
  }
  ~AllSignalsBlocked() { os::sigprocmask(SIG_SETMASK, &before, nullptr); }
  os::SignalSet before = 0;
};

}  // namespace

ServiceThread::~ServiceThread() { free_memory(); }

bool ServiceThread::prepare() {
#ifdef FARSIDE_UNKNOWN_THREADS
  return can_make_thread_storage() && allocate();
#else
  return false;
#endif
}

int ServiceThread::start(void (*task)(void*), void* argument) {
#ifdef FARSIDE_UNKNOWN_THREADS
  if (can_make_thread_storage()) return start_unknown({task, argument});
#endif
  AllSignalsBlocked blocked;
  is_known_ = true;
  task_ = {task, argument};
  auto run = [](void* self_address) -> void* {
    auto& self = *static_cast<ServiceThread*>(self_address);
    self.tid_ = os::gettid();
    self.task_.function(self.task_.argument);
    return nullptr;
  };
  return -pthread_create(&known_, nullptr, run, this);
}

#ifdef FARSIDE_UNKNOWN_THREADS
int ServiceThread::start_unknown(Task task) {
  constexpr uint64_t kFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                              CLONE_SETTLS | CLONE_CHILD_CLEARTID;
  // With signals as they are: libc reads its list of libraries, which may be far memory.
  if (!allocate()) return -ENOMEM;
  AllSignalsBlocked blocked;
  auto* top = reinterpret_cast<Task*>(stack_ + kStackBytes) - 1;
  *top = task;
  alive_.store(1);
  long r = farside_clone_service(kFlags, top, storage_, &alive_);
  tid_ = static_cast<int>(r);
  if (r > 0) {
    replace_running(0, tid_);
    return 0;
  }
  alive_.store(0);
  return static_cast<int>(r);
}
#endif

bool ServiceThread::allocate() {
  if (is_outdated_) free_memory();
  is_outdated_ = false;
  if (storage_) return true;
  stack_ = static_cast<std::byte*>(os::map_near(kStackBytes));
  storage_ = stack_ ? make_thread_storage() : nullptr;
  if (!storage_) {
    free_memory();
    return false;
  }
  os::mprotect(stack_, kPageSize, PROT_NONE);
  return true;
}

void ServiceThread::free_memory() {
  if (storage_) free_thread_storage(storage_);
  if (stack_) os::unmap(stack_, kStackBytes);
  storage_ = nullptr;
  stack_ = nullptr;
}

void ServiceThread::join() {
  if (is_known_) {
    pthread_join(known_, nullptr);
    is_known_ = false;
  }
  while (alive_.load() != 0) os::call(SYS_futex, &alive_, FUTEX_WAIT, 1, nullptr, nullptr, 0);
  // The word, like that which pthread_join waits for, is cleared before the thread leaves its group.
  while (tid_ > 0 && !os::thread_is_gone(os::getpid(), tid_)) os::nanosleep_ns(10000);
  replace_running(tid_, 0);
  tid_ = 0;
}

bool ServiceThread::is_one(int tid) {
  return tid > 0 && std::any_of(std::begin(g_running), std::end(g_running), [tid](auto& task) { return task == tid; });
}

unsigned ServiceThread::count() {
  return static_cast<unsigned>(
      std::count_if(std::begin(g_running), std::end(g_running), [](auto& task) { return task != 0; }));
}

unsigned ServiceThread::count_alive() {
  return static_cast<unsigned>(std::count_if(std::begin(g_running), std::end(g_running), [](auto& task) {
    int tid = task.load();
    return tid != 0 && !os::thread_is_gone(os::getpid(), tid);
  }));
}

void ServiceThread::reset_in_child() {
  is_known_ = false;
  replace_running(tid_, 0);
  tid_ = 0;
  is_outdated_ = true;  // freed by the next start: libc's allocator may be locked now
  alive_.store(0);
}

}  // namespace farside
