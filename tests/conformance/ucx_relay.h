// A relay of UCX for tests.
#pragma once
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "base/clock.h"
#include "base/os.h"
#include "fixture.h"
#include "server/listen.h"
#include "ucx/helper.h"

namespace farside::testing {

class UcxTestRelay {
 public:
  UcxTestRelay(const ucx::Settings& settings, const std::string& socket) : socket_(socket) {
    int listener = *server::listen_unix(socket);
    Status started = helper_.start(settings, "relay", "-", listener);
    os::close(listener);
    if (started.ok()) started = ucx::wait_until_ready(&helper_, settings, 10'000);
    if (!started.ok()) throw std::runtime_error(started.text());
  }
  ~UcxTestRelay() { unlink(socket_.c_str()); }
  const std::string& socket() const { return socket_; }

 private:
  const std::string socket_;
  ucx::Helper helper_;
};

// Stores a page of zeros at the end of each slab, and waits until reads of it are not requests to a server any more.
// reads(): those that the servers have executed.
template <typename Reads>
void wait_for_one_sided_reads(Reads reads, Channel* channel, std::initializer_list<uint64_t> slabs) {
  constexpr int kReads = 4;  // replicas take turns
  for (uint64_t slab : slabs) {
    uint64_t page = (slab + 1) * kSlab - wire::kPageBytes;
    ASSERT_EQ(write(channel, page, Bytes(wire::kPageBytes)), 0);
    uint64_t begin = now_ns(), before;
    do {
      before = reads();
      for (int i = 0; i < kReads; i++) read(channel, page, wire::kPageBytes);
      os::nanosleep_ns(1'000'000);
      ASSERT_LT(now_ns() - begin, kTestTimeoutNs);
    } while (reads() != before);
  }
}

inline void wait_for_one_sided_reads(TestServer* server, Channel* channel) {
  wait_for_one_sided_reads([server] { return (*server)->stats().reads; }, channel, {0, 1});
}

}  // namespace farside::testing
