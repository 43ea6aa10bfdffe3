// System calls with far arguments through the guard. In signal mode a call returns EFAULT when the kernel accesses an
// absent page, so memory that the guard does not pin gives a result other than that of the call with near arguments.
#include "preload/guard/thread/pins.h"

#include "preload/call_test_support.h"
#include "preload/guard/process/process.h"
#include "preload/trace/trace.h"

// ---- Stand-ins for functions of the preload library that the guard calls ----

namespace farside::preload {

bool owns_fd(int) { return false; }
int run_fd() { return -1; }
void pass_run_fds(bool) {}
bool in_handler_mode() { return false; }
void report_at_exit() {}
void end_thread(int) {}
void purge_always() {}
bool reports_when_asked_to_end() { return false; }
void report_before_end() {}
void note_exec() {}
void note_failed_exec() {}
void note_native_program(const char*, const char*) {}
bool g_tracing = false;
void trace_allocation(const void*, size_t) {}
void trace_code_change() {}
const char* static_program_path() { return ""; }
bool serves_static_programs() { return true; }
extern "C" void farside_on_sigbus(int, siginfo_t*, void*) { abort(); }
extern "C" void farside_on_sigsys(int, siginfo_t*, void*) { abort(); }
extern "C" void farside_on_signal(int, siginfo_t*, void*) { abort(); }

namespace {

TEST_P(CallTest, FarAndNearArgumentsGiveTheSameResult) {
  Place near(false, 1);
  Outcome expected;
  GetParam().run(near, expected);
  // The page's end is after the first byte, before the last one, and in the middle of most arguments.
  for (size_t before : {1u, 0u, 9u}) {
    Place far(true, before);
    Outcome got;
    GetParam().run(far, got);
    EXPECT_EQ(got.text(), expected.text()) << before;
  }
}

// Otherwise the cases above would test nothing.
TEST(Guard, TheKernelDoesNotReadFarMemoryByItself) {
  GuardedPager::get();
  Place p(true, 1);
  auto* path = p.text("/dev/null");
  long result = 0;
  for (int i = 0; i < 10 && result != -EFAULT; i++) {  // a window may include the page
    if (result > 0) os::close(static_cast<int>(result));
    GuardedPager::get().evict(path, 10);
    result = os::call(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
  }
  EXPECT_EQ(result, -EFAULT);
}

TEST_F(PinsTest, PinnedPagesStayUntilTheEnd) {
  {
    Pins pins(stack_pointer());
    EXPECT_TRUE(pins.add(far_ + kPageSize - 1, 2, true));
    press();
    EXPECT_TRUE(pager_.is_near(far_));
    EXPECT_TRUE(pager_.is_near(far_ + kPageSize));
    EXPECT_EQ(this_guard().pin_count, 1u);
  }
  EXPECT_EQ(this_guard().pin_count, 0u);
  pager_.evict(far_, 2 * kPageSize);
}

TEST_F(PinsTest, NearMemoryAndEmptyRangesAreNotPinned) {
  Pins pins(stack_pointer());
  char near[10];
  EXPECT_TRUE(pins.add(near, sizeof near, true));
  EXPECT_TRUE(pins.add(nullptr, 100, true));
  EXPECT_TRUE(pins.add(far_, 0, true));
  EXPECT_TRUE(pins.add_string("near"));
  EXPECT_EQ(this_guard().pin_count, 0u);
}

TEST_F(PinsTest, UnmappedMemoryIsReported) {
  far_munmap(far_ + kPageSize, kPageSize);
  Pins pins(stack_pointer());
  EXPECT_TRUE(pins.add(far_, kPageSize, true));
  EXPECT_FALSE(pins.add(far_, kPageSize + 1, true));
  EXPECT_FALSE(pins.add(far_ + kPageSize, 1, true));
  memset(far_, 'x', kPageSize);  // no terminator in this page
  EXPECT_FALSE(pins.add_string(far_ + 100));
  far_[kPageSize - 1] = 0;
  EXPECT_TRUE(pins.add_string(far_ + 100));
}

TEST_F(PinsTest, AnAddressAtTheEndOfFarSpaceIsCutThere) {
  Pins pins(stack_pointer());
  auto* end = reinterpret_cast<char*>(pager_->space().base()) + pager_->space().bytes();
  EXPECT_FALSE(pins.add(end - 1, ~uint64_t{0}, true));  // it belongs to no mapping; and the sum does not overflow
  EXPECT_TRUE(pins.add(end, 1, true));                  // beyond: not far
}

TEST_F(PinsTest, StringsArePinnedUpToTheirEnd) {
  memset(far_, 'x', 3 * kPageSize);
  far_[2 * kPageSize + 5] = 0;
  pager_.evict(far_, 4 * kPageSize);
  Pins pins(stack_pointer());
  EXPECT_TRUE(pins.add_string(far_ + 10));
  press();
  for (size_t page = 0; page < 3; page++) EXPECT_TRUE(pager_.is_near(far_ + page * kPageSize)) << page;
  EXPECT_FALSE(pager_.is_near(far_ + 3 * kPageSize));
}

TEST_F(PinsTest, CallsNest) {
  Pins outer(stack_pointer());
  EXPECT_TRUE(outer.add(far_, 1, true));
  {
    Pins inner(stack_pointer());
    EXPECT_TRUE(inner.add(far_, 1, true));
    EXPECT_TRUE(inner.add(far_ + kPageSize, 1, true));
    EXPECT_EQ(this_guard().pin_count, 3u);
  }
  EXPECT_EQ(this_guard().pin_count, 1u);
  press();
  EXPECT_TRUE(pager_.is_near(far_));  // the outer call's
  pager_.evict(far_ + kPageSize, 1);
}

// A signal handler jumped out of a call with longjmp: the record of that call is of a stack frame below ours.
TEST_F(PinsTest, PinsOfCallsLeftByLongjmpAreDropped) {
  uint64_t sp = stack_pointer();
  alignas(Pins) char storage[sizeof(Pins)];
  auto* jumped = new (storage) Pins(sp - 1000);  // and never destroyed
  EXPECT_TRUE(jumped->add(far_, 1, true));
  {
    Pins deeper(sp - 2000);  // of a handler within that call
    EXPECT_EQ(this_guard().pin_count, 1u);
  }
  Pins next(sp);
  EXPECT_EQ(this_guard().pin_count, 0u);
  pager_.evict(far_, 1);
}

TEST_F(PinsTest, OnTheAlternateStackNoPinIsStale) {
  uint64_t sp = stack_pointer();
  Pins pins(sp - 1000);
  EXPECT_TRUE(pins.add(far_, 1, true));
  this_guard().stack_low = sp - 10;
  this_guard().stack_high = sp + 10;
  {
    Pins handler(sp);  // higher, but of another stack
    EXPECT_EQ(this_guard().pin_count, 1u);
  }
  this_guard().stack_low = this_guard().stack_high = 0;
}

TEST_F(PinsTest, WithoutRoomForRecordsPagesAreFetchedButNotPinned) {
  for (size_t i = 0; i < 70; i++) far_[i * kPageSize] = 1;
  pager_.evict(far_, 70 * kPageSize);
  {
    Pins pins(stack_pointer());
    for (size_t i = 0; i < 70; i++) {
      EXPECT_TRUE(pins.add(far_ + i * kPageSize, 1, false));
      EXPECT_TRUE(pager_.is_near(far_ + i * kPageSize));
    }
    EXPECT_EQ(this_guard().pin_count, +GuardThread::kMaxPins);
  }
  EXPECT_EQ(this_guard().pin_count, 0u);
  pager_.evict(far_, 70 * kPageSize);  // nothing stayed pinned
}

}  // namespace
}  // namespace farside::preload
