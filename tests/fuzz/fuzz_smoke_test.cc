// The fuzzer's checks on a fixed sequence of mutated frames, for compilers without libFuzzer.
#include <gtest/gtest.h>

#include "decode_one.h"
#include "frames.h"

namespace farside::testing {
namespace {

TEST(FuzzSmoke, MutatedFrames) {
  std::mt19937_64 random(2024);
  wire::ServerReport report = {};
  strcpy(report.address, "tcp://10.0.0.1:7170");
  wire::ServersReply servers = {};
  servers.count = 1;
  servers.servers[0] = {report, wire::ServerState::kUp, 10};
  const Frame seeds[] = {hello_frame(1 << 20),
                         frame_of(wire::Op::kProve, 1, wire::Proof{}),
                         frame_of(wire::Op::kProve, 1, wire::HelloReply{}, wire::kFlagReply),
                         list_frame(wire::Op::kRead, 2, {{0, 4096}, {1 << 20, 17}}),
                         list_frame(wire::Op::kWrite, 3, {{100, 33}, {0, 5}}, 38),
                         list_frame(wire::Op::kDiscard, 4, {{0, 1 << 29}}),
                         frame_of(wire::Op::kGrow, 5, wire::ReserveRequest{wire::kSlabBytes, 1}),
                         frame_of(wire::Op::kRegister, 7, report),
                         frame_of(wire::Op::kServers, 8, servers, wire::kFlagReply),
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
