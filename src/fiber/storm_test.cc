// Everything at once, and interrupted by signals at any moment.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <random>
#include <vector>

#include "base/clock.h"
#include "farside/fiber.hpp"
#include "fiber/fake_pager.h"
#include "fiber/test_support.h"
#include "fiber/wait.h"

namespace farside::fibers {
namespace {

class StormTest : public FaultTest {};
INSTANTIATE_TEST_SUITE_P(Workers, StormTest, kWorkerCounts);

struct Storm {
  mutex lock;
  condition_variable condition;
  channel<int> messages{4};
  int guarded = 0;
  std::atomic<int> expected{0};
  std::atomic<int> balance{0};
  SocketPair pair;
};

void storm_step(Storm& s, std::minstd_rand& random, int depth);

void storm_fiber(Storm& s, unsigned seed, int steps, int depth) {
  std::minstd_rand random(seed);
  for (int i = 0; i < steps; i++) storm_step(s, random, depth);
}

void storm_step(Storm& s, std::minstd_rand& random, int depth) {
  switch (random() % 9) {
    case 0:
      return this_fiber::yield();
    case 1:
      return this_fiber::sleep_for(std::chrono::microseconds(random() % 300));
    case 2: {
      std::lock_guard guard(s.lock);
      int seen = s.guarded;
      if (random() % 4 == 0) this_fiber::yield();
      s.guarded = seen + 1;
      s.expected++;
      s.condition.notify_one();
      return;
    }
    case 3:
      s.messages.send(1);
      s.balance++;
      return;
    case 4:
      if (s.messages.try_receive()) s.balance--;
      return;
    case 5: {
      if (depth == 0) return;
      unsigned seed = random();
      fiber child([&s, seed, depth] { storm_fiber(s, seed, 10, depth - 1); });
      if (random() % 2) this_fiber::yield();
      return;
    }
    case 6: {
      char byte = 'x';
      EXPECT_EQ(farside_fiber_write(s.pair.fds[0], &byte, 1), 1);
      EXPECT_EQ(farside_fiber_read(s.pair.fds[1], &byte, 1), 1);
      return;
    }
    case 7: {
      volatile char* byte = g_pager->page(random() % FakePager::kPages);
      *byte;
      return;
    }
    case 8: {
      std::atomic<uint64_t> due{now_ns() + random() % 50000};
      Awaited awaited = {&due};
      wait_until(is_due, &awaited);
      return;
    }
  }
}

void storm(unsigned workers) {
  for (uint64_t end = now_ns() + 700000000, seed = 1; now_ns() < end; seed++) {
    g_pager->reset();
    run_fibers(workers, [&] {
      Storm storm;
      std::atomic<bool> over{false};
      fiber drain([&] {
        while (storm.messages.receive()) storm.balance--;
      });
      fiber waiter([&] {
        std::lock_guard guard(storm.lock);
        while (!over) storm.condition.wait(storm.lock);
      });
      {
        std::vector<fiber> fibers;
        for (unsigned i = 0; i < 24; i++) {
          fibers.emplace_back([&storm, i, seed] { storm_fiber(storm, seed * 1000 + i, 60, 2); });
        }
      }
      storm.messages.close();
      drain.join();
      {
        std::lock_guard guard(storm.lock);
        over = true;
        storm.condition.notify_all();
      }
      waiter.join();
      EXPECT_EQ(storm.guarded, storm.expected);
      EXPECT_EQ(storm.balance, 0);
      farside_fiber_close(storm.pair.fds[0]);
      farside_fiber_close(storm.pair.fds[1]);
    });
  }
}

TEST_P(StormTest, Storm) { storm(GetParam()); }

// Signals at any moment, with a handler that touches absent pages: in the library, in the loop, in waits for pages.
class Interruptions {
 public:
  explicit Interruptions(int flags) {
    g_count = 0;
    struct sigaction action = {};
    action.sa_handler = interrupt;
    action.sa_flags = flags;
    sigaction(SIGALRM, &action, &before_);
    itimerval often = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Interruptions() {
    itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
    EXPECT_GT(g_count, 0);
  }

 private:
  static void interrupt(int) {
    int saved_errno = errno;
    sigset_t faults;  // the thread sanitizer blocks all signals in handlers
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
    if (g_running++ < kMaxRunning) {
      size_t page = static_cast<size_t>(g_count++) % FakePager::kPages;
      g_pager->due_ns[page] = 0;
      mprotect(g_pager->page(page), FakePager::kPage, PROT_NONE);
      *static_cast<volatile char*>(g_pager->page(page));
    }
    g_running--;
    errno = saved_errno;
  }
  // On a busy machine each page may arrive after the next signal: the frames of nested handlers would fill the stack.
  static constexpr int kMaxRunning = 8;
  static inline std::atomic<int> g_count, g_running;
  struct sigaction before_ = {};
};

TEST_P(StormTest, InterruptedStorm) {
  Interruptions interruptions(0);
  storm(GetParam());
}

// A handler with SA_NODEFER runs with the mask of ordinary code, so its faults suspend the fiber. That is an error of
// the program where it interrupted malloc, but must work where it interrupted wait_until.
TEST_P(StormTest, InterruptedWaits) {
  Interruptions interruptions(SA_NODEFER);
  std::atomic<int> waits{0};
  run_fibers(GetParam(), [&] {
    uint64_t end = now_ns() + 500000000;
    std::vector<fiber> fibers;
    auto wait = [&, end] {
      while (now_ns() < end) {
        std::atomic<uint64_t> due{now_ns() + 20000};
        Awaited awaited = {&due};
        wait_until(is_due, &awaited);
        waits++;
      }
      farside_fiber_hold();  // the end of the fiber frees memory
    };
    fiber_hold hold;  // emplace_back allocates
    for (int i = 0; i < 8; i++) fibers.emplace_back(wait);
    farside_fiber_release();
    wait();
    fibers.clear();
  });
  EXPECT_GT(waits, 8);
}

// A new fiber begins inside the library. Until it has stored where the worker's loop continues, a fault in a handler
// would switch to an old position of the loop.
TEST_P(StormTest, InterruptedStarts) {
  Interruptions interruptions(SA_NODEFER);
  std::atomic<int> started{0}, ended{0};
  run_fibers(GetParam(), [&] {
    auto end_soon = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
    for (uint64_t end = now_ns() + 500000000; now_ns() < end; this_fiber::yield()) {
      for (int i = 0; i < 8; i++) {
        if (farside_fiber_spawn(nullptr, end_soon, &ended) == 0) started++;
      }
    }
  });
  EXPECT_GT(started, 0);
  EXPECT_EQ(started, ended);
}

}  // namespace
}  // namespace farside::fibers
