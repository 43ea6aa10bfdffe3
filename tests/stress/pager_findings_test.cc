// Regression tests for the defects that the stress program and reviews of the pager found, each as small as possible.
// Every test runs in its own process, because most of these defects end it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "pager/test_support.h"

namespace farside::pager {
namespace {

constexpr uint64_t kSpace = 256 * kMiB;

Options options() {
  Options o;
  o.local = {8 * kMiB, 0};
  o.space = kSpace;
  return o;
}

#define REQUIRE(condition) \
  if (!(condition)) die("required: {}", #condition)

// 0 if the body returned; otherwise the status from waitpid.
int in_child(const std::function<void()>& body) {
  pid_t pid = ::fork();
  if (pid == 0) {
    alarm(60);
    body();
    os::exit_group(0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

void make_far(PagerFixture& pager) {
  constexpr size_t kBytes = 32 * kMiB;
  std::byte* memory = pager.allocate(kBytes);
  memset(memory, 1, kBytes);
  pager.free(memory, kBytes);
}

// A store that forks like private memory. Its channels accept only tokens that they have issued and not completed.
class StrictChannel : public LocalChannel {
 public:
  using LocalChannel::LocalChannel;
  int submit_write(std::span<const transport::ByteRange> s, int pipe, transport::Token* token) override {
    int r = LocalChannel::submit_write(s, pipe, token);
    return give(r, token);
  }
  int submit_discard(std::span<const transport::ByteRange> s, transport::Token* token) override {
    return give(LocalChannel::submit_discard(s, token), token);
  }
  int submit_read(std::span<const transport::ByteRange> s, transport::Token* token) override {
    return give(LocalChannel::submit_read(s, token), token);
  }
  int poll(transport::Token token) override { return spend(token) ? 1 : -EINVAL; }
  int wait(transport::Token token, uint64_t) override { return spend(token) ? 0 : -EINVAL; }

 private:
  int give(int r, transport::Token* token) {
    *token = ++last_;
    given_[last_ % transport::kMaxInFlight] = last_;
    return r;
  }
  bool spend(transport::Token token) {
    transport::Token& given = given_[token % transport::kMaxInFlight];
    if (token == 0 || given != token) return false;
    given = 0;
    return true;
  }
  transport::Token last_ = 16;
  transport::Token given_[transport::kMaxInFlight] = {};  // issued and not yet completed
};

class StrictStore : public LocalStore {
 public:
  StrictStore() : LocalStore(kSpace, kSpace, true), memory_(static_cast<std::byte*>(os::map_near(kSpace))) {}
  ~StrictStore() override { os::unmap(memory_, kSpace); }
  transport::Channel* open_channel(Status*) override { return new StrictChannel(memory_, true); }
  Result<remote::ForkTicket> prepare_fork() override { return remote::ForkTicket(); }
  Status adopt_in_child(remote::ForkTicket) override { return {}; }

 private:
  std::byte* memory_;
};

// RangeOps must wait for the request that it submitted.
TEST(PagerFindings, DiscardAndSealWaitForTheirOwnRequest) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager.allocate(kMiB);
              memset(memory, 1, kMiB);
              REQUIRE(pager->addresses().protect(memory, kMiB, PROT_NONE).ok());
              REQUIRE(pager->addresses().protect(memory, kMiB, PROT_READ | PROT_WRITE).ok());
              pager->addresses().discard(memory, kMiB);
              REQUIRE(memory[0] == std::byte{0});
            }));
}

// UFFDIO_COPY rejects a range that crosses from one mapping into another, and mprotect splits mappings.
TEST(PagerFindings, StreamsCrossProtections) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              constexpr size_t kBytes = 4 * kMiB;
              std::byte* memory = pager.allocate(kBytes);
              memset(memory, 1, kBytes);
              REQUIRE(pager->addresses().protect(memory + kBytes / 2, kBytes / 2, PROT_READ).ok());
              make_far(pager);
              for (size_t i = 0; i < kBytes; i += kPageSize) REQUIRE(memory[i] == std::byte{1});
            }));
}

// read(fd, buffer) into read-only memory must return EFAULT, and not end the process.
TEST(PagerFindings, PinningReadOnlyMemoryForWritingDoesNotEndTheProcess) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager.allocate(kPageSize);
              memory[0] = std::byte{1};
              make_far(pager);
              REQUIRE(memory[0] == std::byte{1});  // near and clean
              REQUIRE(pager->addresses().protect(memory, kPageSize, PROT_READ).ok());
              if (pager->paging().pin(memory, 1, true) == 1)
                pager->paging().unpin(memory, 1);  // the system call would fail
            }));
}

// A handler thread may process a message whose thread has continued long before, because the window of another fault
// mapped the page.
TEST(PagerFindings, AnOutdatedWriteFaultOnReadOnlyMemoryIsHarmless) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager.allocate(kPageSize);
              memory[0] = std::byte{1};
              make_far(pager);
              REQUIRE(memory[0] == std::byte{1});  // near and clean
              REQUIRE(pager->addresses().protect(memory, kPageSize, PROT_READ).ok());
              pager->paging().fault(reinterpret_cast<uint64_t>(memory), true);
              REQUIRE(pager->addresses().protect(memory, kPageSize, PROT_READ | PROT_WRITE).ok());
              *reinterpret_cast<volatile std::byte*>(memory) = std::byte{2};
              make_far(pager);
              REQUIRE(memory[0] == std::byte{2});
            }));
}

// One thread blocks in write(fd, read-only far buffer) while another forks.
TEST(PagerFindings, ForkWithAPinnedReadOnlyPage) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager.allocate(kPageSize);
              memory[0] = std::byte{1};
              REQUIRE(pager->addresses().protect(memory, kPageSize, PROT_READ).ok());
              REQUIRE(pager->paging().pin(memory, 1, false) == 1);
              pager->forks().prepare();
              pid_t pid = ::fork();
              if (pid == 0) os::exit_group(0);
              pager->forks().in_parent(true);
              pager->paging().unpin(memory, 1);
              waitpid(pid, nullptr, 0);
            }));
}

// Two threads that access the same hot page for hours. Each finds it near again and again, with fetches in between.
TEST(PagerFindings, ANearPageFoundOftenIsNoEndlessFault) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager.allocate(16 * kPageSize);
              memory[0] = std::byte{1};
              auto hot = reinterpret_cast<uint64_t>(memory);
              for (int i = 0; i < 100001; i++) {
                pager->paging().fault(hot, false);  // another thread fetched it first
                if (i % 100 != 0) continue;
                memory[kPageSize] = std::byte{1};  // faults of this thread in between
                pager->addresses().discard(memory + kPageSize, kPageSize);
              }
            }));
}

// PROT_WRITE implies PROT_READ on every machine on which Farside runs.
TEST(PagerFindings, WriteOnlyMemoryCanBeWritten) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager.allocate(kPageSize);
              REQUIRE(pager->addresses().protect(memory, kPageSize, PROT_WRITE).ok());
              *reinterpret_cast<volatile char*>(memory) = 1;
            }));
}

// An access to free addresses is an error of the program, but must not make them unusable for their next allocation.
TEST(PagerFindings, GuardedAddressesCanBeUsedLater) {
  EXPECT_EQ(0, in_child([] {
              PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
              std::byte* memory = pager->addresses().reserve(kPageSize, kPageSize);
              pager->addresses().guard_page(
                  reinterpret_cast<uint64_t>(memory));  // the result of a fault outside all allocations
              REQUIRE(pager->addresses().commit(memory, kPageSize).ok());
              *reinterpret_cast<volatile char*>(memory) = 1;
            }));
}

// If mprotect fails, the range is as it was before.
TEST(PagerFindings, AFailedProtectChangesNothing) {
  EXPECT_EQ(
      0, in_child([] {
        PagerFixture pager(options(), new StrictStore, Delivery::kSignal);
        std::byte* memory = pager.allocate(kPageSize);
        memory[0] = std::byte{1};
        REQUIRE(
            !pager->addresses().protect(memory, kPageSize, 1 << 20).ok());  // EINVAL from the kernel, and not readable
        REQUIRE(memory[0] == std::byte{1});
      }));
}

}  // namespace
}  // namespace farside::pager
