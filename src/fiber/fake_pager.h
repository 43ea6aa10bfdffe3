// A stand-in for the pager, for tests of fibers that fault. Its pages are protected; a fault in one waits, as the real
// pager does, until the page's time has come, and then makes the page accessible.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/os.h"
#include "base/sync.h"
#include "fiber/wait.h"

namespace farside::fibers {

struct FakePager {
  static constexpr size_t kPage = 4096;
  static constexpr int kPages = 256;
  static constexpr uint64_t kFetchNs = 200000;

  FakePager() = default;
  ~FakePager() { munmap(memory, kPages * kPage); }
  FakePager(const FakePager&) = delete;
  FakePager& operator=(const FakePager&) = delete;

  char* page(size_t number) { return memory + number * kPage; }
  // Makes all pages absent.
  void reset() {
    mprotect(memory, kPages * kPage, PROT_NONE);
    for (auto& due : due_ns) due = 0;
  }

  char* memory = static_cast<char*>(mmap(nullptr, kPages* kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::atomic<uint64_t> due_ns[kPages] = {};  // when each page arrives; 0: not requested
  std::atomic<int> faults{0}, polls{0}, starts{0}, ends{0}, waits_in_fiber{0};
};
inline FakePager* g_pager = nullptr;

// The argument of is_due, for wait_until.
struct Awaited {
  std::atomic<uint64_t>* due;
};
inline bool is_due(void* arg) { return now_ns() >= static_cast<Awaited*>(arg)->due->load(); }

// SIGSEGV. Ends the process with status 99 at a fault elsewhere, with 98 if wait_until does not keep errno.
inline void on_fault(int, siginfo_t* info, void* context) {
  auto* address = static_cast<char*>(info->si_addr);
  if (address < g_pager->memory || address >= g_pager->page(FakePager::kPages)) _exit(99);
  size_t page = static_cast<size_t>(address - g_pager->memory) / FakePager::kPage;
  g_pager->faults++;
  uint64_t not_requested = 0;  // another fault may have requested the page
  g_pager->due_ns[page].compare_exchange_strong(not_requested, now_ns() + FakePager::kFetchNs);
  Awaited awaited = {&g_pager->due_ns[page]};
  os::SignalSet mask = 0;
  memcpy(&mask, &static_cast<ucontext_t*>(context)->uc_sigmask, sizeof mask);
  if (in_fiber(mask)) {
    g_pager->waits_in_fiber++;
    errno = 4711;
    wait_until(is_due, &awaited);
    if (errno != 4711) _exit(98);
  } else {
    while (!is_due(&awaited)) cpu_relax();
  }
  mprotect(g_pager->page(page), FakePager::kPage, PROT_READ | PROT_WRITE);
}

// A fixture with a pager, its handler and its hooks. The parameter is the number of workers.
class FaultTest : public testing::TestWithParam<unsigned> {
 protected:
  FaultTest() {
    g_pager = new FakePager;
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigfillset(&action.sa_mask);
    for (int allowed : {SIGBUS, SIGSEGV, SIGSYS}) sigdelset(&action.sa_mask, allowed);
    sigaction(SIGSEGV, &action, &before_);
    set_hooks({[] { g_pager->starts++; }, [] { g_pager->ends++; }, [] { g_pager->polls++; }});
  }
  ~FaultTest() override {
    set_hooks({});
    sigaction(SIGSEGV, &before_, nullptr);
    delete g_pager;
  }
  struct sigaction before_ = {};
};

}  // namespace farside::fibers
