#include "launch/run_captured.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

namespace farside {
namespace {

CapturedRun run(const char* script, const CaptureOptions& options = {}) {
  SignalHold hold;
  Result<CapturedRun> done = run_captured({"/bin/sh", "-c", script}, hold, options);
  EXPECT_TRUE(done.ok()) << done.status().text();
  return done.ok() ? *done : CapturedRun{};
}

TEST(RunCapturedTest, OutputAndErrorsAreSeparate) {
  CapturedRun done = run("echo one; echo two >&2");
  EXPECT_TRUE(done.succeeded());
  EXPECT_EQ(done.output, "one\n");
  EXPECT_EQ(done.errors, "two\n");
  EXPECT_GT(done.seconds, 0);
  EXPECT_GT(done.peak_bytes, 0u);
  EXPECT_EQ(run("echo one", {.keep_output = false}).output, "");
}

TEST(RunCapturedTest, OnlyTheEndOfLongOutputIsKept) {
  CapturedRun done = run("yes | head -c 3000000; echo end");
  EXPECT_LE(done.output.size(), 1u << 20);
  EXPECT_TRUE(done.output.ends_with("y\nend\n"));
}

TEST(RunCapturedTest, TheOutcomeNamesStatusAndLastError) {
  EXPECT_EQ(run("echo first >&2; echo last >&2; exit 3").outcome(), "status 3: last");
  EXPECT_EQ(run("kill -SEGV $$").outcome(), "signal 11");
  EXPECT_FALSE(run("exit 3").succeeded());
  SignalHold hold;
  EXPECT_EQ(run_captured({"/no/such/program"}, hold)->wait_status, 127 << 8);
}

TEST(RunCapturedTest, ThereIsNoInput) { EXPECT_EQ(run("read line || echo none").output, "none\n"); }

TEST(RunCapturedTest, AProgramBeyondItsTimeLimitIsKilledWithItsChildren) {
  CapturedRun done = run("sleep 100 & echo $!; sleep 100", {.seconds = 0.3});
  EXPECT_TRUE(done.cut_off);
  EXPECT_FALSE(done.succeeded());
  EXPECT_LT(done.seconds, 50);
  EXPECT_TRUE(done.outcome().starts_with("cut off after")) << done.outcome();
  pid_t grandchild = std::stoi(done.output);
  for (uint64_t begin = now_ns(); kill(grandchild, 0) == 0 && now_ns() - begin < 20'000'000'000;) usleep(10'000);
  // It may remain as a zombie if no process reaps orphans.
  EXPECT_TRUE(kill(grandchild, 0) != 0 || getpgid(grandchild) > 0);
}

TEST(RunCapturedTest, AStopSignalEndsTheProgramAndTheRun) {
  SignalHold hold;
  pid_t self = getpid();
  pid_t sender = fork();
  if (sender == 0) {
    usleep(200'000);
    kill(self, SIGTERM);
    _exit(0);
  }
  uint64_t begin = now_ns();
  Result<CapturedRun> done = run_captured({"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, hold);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.status().code(), EINTR);
  EXPECT_LT(now_ns() - begin, 60'000'000'000u);
  waitpid(sender, nullptr, 0);
}

}  // namespace
}  // namespace farside
