// Support for the tests of guarded system calls: arguments that are near or far, what calls return and write, and cases
// that are run with both. The tests of a subject are in *_calls_test.cc.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "preload/test_support.h"

namespace farside::preload {

// Arguments of a system call: near, or far with no page near when the call is made. Each begins `before` bytes before
// the end of a page.
class Place {
 public:
  Place(bool far, size_t before) : far_(far), before_(before) {
    memory_ = far ? reinterpret_cast<char*>(
                        far_mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
                  : static_cast<char*>(os::map_near(kBytes));
  }
  ~Place() { far_ ? static_cast<void>(far_munmap(memory_, kBytes)) : os::unmap(memory_, kBytes); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  char* room(size_t bytes) {
    size_t before = bytes < 2 ? 0 : before_ == 0 ? bytes - 1 : std::min(before_, bytes - 1);
    char* at = memory_ + (next_ += kPageSize) - before;
    next_ += align_up(bytes, kPageSize);
    EXPECT_LT(next_, kBytes);
    return at;
  }
  template <typename T>
  T* put(const T& value) {
    return static_cast<T*>(memcpy(static_cast<void*>(room(sizeof value)), &value, sizeof value));
  }
  char* text(const std::string& value) {
    return static_cast<char*>(memcpy(room(value.size() + 1), value.c_str(), value.size() + 1));
  }
  template <typename... Args>
  long call(long number, Args... args) {
    if (!far_) return os::call(number, args...);
    GuardedPager::get().evict(memory_, next_);
    Call c = {number, {}, stack_pointer()};
    size_t i = 0;
    ((c.arg[i++] = (long)(args)), ...);
    return guarded_call(c);
  }
  bool is_far() const { return far_; }

 private:
  static constexpr size_t kBytes = 4 * kMiB;
  const bool far_;
  const size_t before_;
  char* memory_;
  size_t next_ = kPageSize;
};

// The results and output of a case's calls, for comparison.
class Outcome {
 public:
  void add(long value) { text_ += std::to_string(value) + ";"; }
  void add(const void* bytes, size_t count) { text_.append(static_cast<const char*>(bytes), count); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct Case {
  const char* name;
  std::function<void(Place&, Outcome&)> run;
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class CallTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { GuardedPager::get(); }
};

inline int temporary_file(const std::string& content = "") {
  int fd = os::memfd_create("guard_test", 0);
  EXPECT_EQ(os::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  EXPECT_EQ(::lseek(fd, 0, SEEK_SET), 0);
  return fd;
}

inline std::string temporary_path() {
  static int count = 0;
  return "/tmp/farside-guard-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

// A descriptor, as an outcome: whether there is one.
inline void add_fd(Outcome& out, long fd) {
  out.add(fd < 0 ? fd : 1);
  if (fd >= 0) os::close(static_cast<int>(fd));
}

// A child process that exits at once without executing any of our code.
inline long ended_child() {
  long pid = os::call(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) os::exit_group(7);
  return pid;
}

inline sockaddr_un abstract_name() {
  static int count = 0;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "farside-guard-%d-%d", getpid(), count++);
  return address;
}

// Cases of a subject: each gives the same result with near and far arguments.
#define TEST_CALLS(subject, cases)                                      \
  INSTANTIATE_TEST_SUITE_P(subject, CallTest, testing::ValuesIn(cases), \
                           [](const auto& kind) { return kind.param.name; })

class PinsTest : public testing::Test {
 protected:
  GuardedPager& pager_ = GuardedPager::get();
  char* far_ =
      reinterpret_cast<char*>(far_mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ~PinsTest() override { far_munmap(far_, kBytes); }
  void press() {
    for (int i = 0; i < 2; i++) pager_.touch_filler();
  }
  static constexpr size_t kBytes = kMiB;
};

class LargeTransferTest : public PinsTest {
 protected:
  template <typename... Args>
  long call(long number, Args... args) {
    Call c = {number, {}, stack_pointer()};
    size_t i = 0;
    ((c.arg[i++] = (long)(args)), ...);
    return guarded_call(c);
  }
  void fill() {
    for (size_t i = 0; i < kBytes; i++) far_[i] = static_cast<char>(i * 7 + i / 4096);
  }
  std::string expected(size_t from, size_t bytes) {
    std::string out(bytes, 0);
    for (size_t i = 0; i < bytes; i++) out[i] = static_cast<char>((from + i) * 7 + (from + i) / 4096);
    return out;
  }
};

}  // namespace farside::preload
