// The fuzzer's checks on a fixed sequence of mutated frames, for compilers without libFuzzer.
#include <gtest/gtest.h>

#include "decode_one.h"
#include "frames.h"

namespace farside::testing {
namespace {

struct CallWithRanges {
  wire::CallRequest head = {0, 0, 64, 128, 2, 8};
  wire::CallRange ranges[2] = {{0, 4096, 0}, {8192, 8192, 1}};
  uint64_t argument = 7;
};
struct ReplyWithResult {
  wire::CallReply head = {0, 1, 8, 0};
  uint64_t result = 7;
};

TEST(FuzzSmoke, MutatedFrames) {
  std::mt19937_64 random(2024);
  wire::ServerReport report = {};
  strcpy(report.address, "tcp://10.0.0.1:7170");
  wire::ServersReply servers = {};
  servers.count = 1;
  servers.servers[0] = {report, wire::ServerState::kUp, 10};
  wire::CordonRequest cordon = {};
  strcpy(cordon.address, report.address);
  const Frame seeds[] = {
      hello_frame(1 << 20),
      frame_of(wire::Op::kProve, 1, wire::Proof{}),
      frame_of(wire::Op::kProve, 1, wire::HelloReply{}, wire::kFlagReply),
      list_frame(wire::Op::kRead, 2, {{0, 4096}, {1 << 20, 17}}),
      list_frame(wire::Op::kWrite, 3, {{100, 33}, {0, 5}}, 38),
      list_frame(wire::Op::kDiscard, 4, {{0, 1 << 29}}),
      frame_of(wire::Op::kGrow, 5, wire::ReserveRequest{wire::kSlabBytes, 1}),
      frame_of(wire::Op::kRegister, 7, report),
      frame_of(wire::Op::kRegister, 7, wire::RegisterReply{wire::Order::kCordon, 0}, wire::kFlagReply),
      frame_of(wire::Op::kCordon, 13, cordon),
      frame_of(wire::Op::kCopies, 14, wire::CopiesReport{1, 2, 3, 4}),
      frame_of(wire::Op::kServers, 8, servers, wire::kFlagReply),
      frame_of(wire::Op::kCallOpen, 9, wire::CallOpen{uint64_t{1} << 40, 0}),
      frame_of(wire::Op::kCallCode, 10, wire::CallCode{{}, 100, 0}),
      frame_of(wire::Op::kCall, 11, CallWithRanges()),
      frame_of(wire::Op::kCall, 12, ReplyWithResult(), wire::kFlagReply),
      frame_of(wire::Op::kError, 6, wire::make_error(5, "why"), wire::kFlagReply)};
  int accepted = 0;
  for (const Frame& seed : seeds) EXPECT_GT(decode_one(seed), 0);
  for (int i = 0; i < 100000; i++) {
    Frame f = seeds[random() % std::size(seeds)];
    mutate(&f, &random);
    accepted += decode_one(f);
  }
  EXPECT_GT(accepted, 1000);  // not all mutations may fail the first check
}

}  // namespace
}  // namespace farside::testing
