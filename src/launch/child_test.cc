#include "launch/child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farside {
namespace {

int status_of(const char* script) {
  SignalHold hold;
  Result<pid_t> child = start_child("/bin/sh", {"sh", "-c", script}, hold);
  EXPECT_TRUE(child.ok()) << child.status().text();
  return wait_for_child(*child, hold);
}

TEST(ChildTest, StatusesArePassedThrough) {
  EXPECT_EQ(WEXITSTATUS(status_of("exit 0")), 0);
  EXPECT_EQ(WEXITSTATUS(status_of("exit 42")), 42);
  EXPECT_EQ(WTERMSIG(status_of("kill -SEGV $$")), SIGSEGV);
}

TEST(ChildTest, TheProgramKeepsItsSignalMask) {
  // With an inherited mask the child would not receive TERM.
  EXPECT_EQ(WTERMSIG(status_of("kill -TERM $$")), SIGTERM);
}

TEST(ChildTest, SignalsFromProcessesReachTheProgram) {
  SignalHold hold;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  std::string script = "trap 'exit 7' USR1; echo >&" + std::to_string(ready[1]) + "; while :; do sleep 0.02; done";
  Result<pid_t> child = start_child("/bin/sh", {"sh", "-c", script}, hold);
  ASSERT_TRUE(child.ok());
  char newline;
  ASSERT_EQ(read(ready[0], &newline, 1), 1);  // the trap is set
  kill(getpid(), SIGUSR1);
  EXPECT_EQ(WEXITSTATUS(wait_for_child(*child, hold)), 7);
  close(ready[0]);
  close(ready[1]);
}

TEST(ChildTest, AMissingFileIsAnError) {
  SignalHold hold;
  Result<pid_t> child = start_child("/no/such/program", {"x"}, hold);
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.status().code(), ENOENT);
}

TEST(ChildTest, OnlyStopSignalsCount) {
  SignalHold hold;
  kill(getpid(), SIGUSR1);
  EXPECT_FALSE(stop_signal_within(hold, 1000));
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(stop_signal_within(hold, 1000));
  EXPECT_FALSE(stop_signal_within(hold, 1));
}

TEST(ChildDeathTest, EndsByTheSameSignal) {
  EXPECT_EXIT(end_like_child(SIGTERM), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EQ(end_like_child(9 << 8), 9);
}

}  // namespace
}  // namespace farside
