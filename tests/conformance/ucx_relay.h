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

// Waits until reads of the first two slabs are not requests to the server any more. A page of zeros is stored in each.
inline void wait_for_one_sided_reads(TestServer* server, Channel* channel) {
  for (uint64_t slab : {0, 1}) {
    uint64_t page = (slab + 1) * kSlab - wire::kPageBytes;
    ASSERT_EQ(write(channel, page, Bytes(wire::kPageBytes)), 0);
    uint64_t begin = now_ns(), before;
    do {
      before = (*server)->stats().reads;
      read(channel, page, wire::kPageBytes);
      os::nanosleep_ns(1'000'000);
      ASSERT_LT(now_ns() - begin, kTestTimeoutNs);
    } while ((*server)->stats().reads != before);
  }
}

}  // namespace farside::testing
