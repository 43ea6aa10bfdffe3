#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <random>
#include <vector>

#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::wire {
namespace {

TEST(Crc32c, KnownAnswer) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c_portable(0, "123456789", 9), 0xe3069283u);
}

TEST(Crc32c, FastFormAgreesWithPortableForm) {
  std::mt19937_64 random(1);
  std::vector<unsigned char> bytes(20000);
  for (auto& b : bytes) b = static_cast<unsigned char>(random());
  for (int i = 0; i < 300; i++) {
    size_t from = random() % 64, length = random() % (bytes.size() - from);
    size_t split = length ? random() % length : 0;
    uint32_t whole = crc32c_portable(0, &bytes[from], length);
    EXPECT_EQ(crc32c(0, &bytes[from], length), whole);
    EXPECT_EQ(crc32c(crc32c(0, &bytes[from], split), &bytes[from + split], length - split), whole);
  }
}

std::vector<std::byte> list(std::vector<ByteRange> ranges, size_t data_bytes = 0) {
  ListHeader head = {static_cast<uint32_t>(ranges.size()), 0};
  std::vector<std::byte> out(sizeof head + ranges.size() * sizeof(ByteRange) + data_bytes);
  memcpy(out.data(), &head, sizeof head);
  if (!ranges.empty()) memcpy(out.data() + sizeof head, ranges.data(), ranges.size() * sizeof(ByteRange));
  return out;
}

TEST(Codec, AcceptsWellFormedLists) {
  ListRequest request;
  auto two = list({{0, 4096}, {4096, 1}});
  EXPECT_EQ(decode_list(Op::kRead, two, 8192, &request), 0);
  EXPECT_EQ(request.total_bytes, 4097u);
  EXPECT_EQ(request.ranges[1].offset, 4096u);
  EXPECT_EQ(decode_list(Op::kWrite, list({{10, 7}}, 7), 8192, &request), 0);
  EXPECT_EQ(request.data.size(), 7u);
  EXPECT_EQ(decode_list(Op::kDiscard, list({{0, kMaxRegionBytes}}), kMaxRegionBytes, &request), 0);
}

TEST(Codec, RejectsMalformedLists) {
  ListRequest request;
  EXPECT_EQ(decode_list(Op::kRead, {}, 8192, &request), -EBADMSG);
  EXPECT_EQ(decode_list(Op::kRead, list({}), 8192, &request), -EBADMSG);
  EXPECT_EQ(decode_list(Op::kRead, list(std::vector<ByteRange>(kMaxRanges + 1, {0, 1})), 8192, &request), -EBADMSG);
  EXPECT_EQ(decode_list(Op::kRead, list({{0, 0}}), 8192, &request), -EINVAL);
  EXPECT_EQ(decode_list(Op::kRead, list({{8192, 1}}), 8192, &request), -ERANGE);
  EXPECT_EQ(decode_list(Op::kRead, list({{~0ull, 2}}), 8192, &request), -ERANGE);
  EXPECT_EQ(decode_list(Op::kRead, list({{2, ~0ull}}), 8192, &request), -ERANGE);
  EXPECT_EQ(decode_list(Op::kRead, list({{0, 8192}}, 1), 8192, &request), -EBADMSG);
  EXPECT_EQ(decode_list(Op::kWrite, list({{0, 8}}, 7), 8192, &request), -EBADMSG);
  EXPECT_EQ(decode_list(Op::kRead, list({{0, kMaxDataBytes}, {0, 1}}), kMaxRegionBytes, &request), -E2BIG);
  auto cut = list({{0, 1}, {0, 1}});
  cut.pop_back();
  EXPECT_EQ(decode_list(Op::kRead, cut, 8192, &request), -EBADMSG);
  auto reserved = list({{0, 1}});
  reserved[4] = std::byte{1};
  EXPECT_EQ(decode_list(Op::kRead, reserved, 8192, &request), -EBADMSG);
}

TEST(Codec, ChecksHeaders) {
  FrameHeader good = make_header(Op::kRead, 0, 7, 24);
  EXPECT_EQ(check_request_header(good), 0);
  auto changed = [&](auto change) {
    FrameHeader h = good;
    change(h);
    return check_request_header(h);
  };
  EXPECT_EQ(changed([](auto& h) { h.magic++; }), -EBADMSG);
  EXPECT_EQ(changed([](auto& h) { h.version++; }), -EPROTONOSUPPORT);
  EXPECT_EQ(changed([](auto& h) { h.op = 0; }), -EBADMSG);
  EXPECT_EQ(changed([](auto& h) { h.op = 9; }), -EBADMSG);
  EXPECT_EQ(changed([](auto& h) { h.flags = kFlagReply; }), -EBADMSG);
  EXPECT_EQ(changed([](auto& h) { h.payload_bytes = kMaxPayload + 1; }), -EBADMSG);
  EXPECT_EQ(check_reply_header(make_header(Op::kError, kFlagReply, 7, 128)), 0);
  EXPECT_EQ(check_reply_header(good), -EBADMSG);
}

TEST(Codec, ChecksHello) {
  HelloRequest hello = {HelloMode::kCreate, 0, 4096, 0, 0, 0, {}};
  HelloRequest out;
  auto decode = [&] { return decode_hello(bytes_of(hello), &out); };
  EXPECT_EQ(decode(), 0);
  hello.zero = 1;
  EXPECT_EQ(decode(), -EBADMSG);
  hello.zero = 0;
  hello.region_bytes = 4097;
  EXPECT_EQ(decode(), -EINVAL);
  hello.region_bytes = 4096;
  hello.channel = hello.generation = 1;  // for connections to a region that exists
  EXPECT_EQ(decode(), -EBADMSG);
  hello.mode = HelloMode::kAttach;
  EXPECT_EQ(decode(), 0);
  hello.generation = 0;
  EXPECT_EQ(decode(), -EBADMSG);
  hello.mode = static_cast<HelloMode>(77);
  EXPECT_EQ(decode(), -EBADMSG);
}

TEST(Codec, ChecksReportsOfServers) {
  ServerReport report = {}, out;
  auto decode = [&] { return decode_report(bytes_of(report), &out); };
  EXPECT_EQ(decode(), -EBADMSG);  // no address
  strcpy(report.address, "tcp://10.0.0.1:7170");
  EXPECT_EQ(decode(), 0);
  report.address[40] = 'x';  // after the terminating zero
  EXPECT_EQ(decode(), -EBADMSG);
  report.address[40] = 0;
  report.address[3] = '\n';
  EXPECT_EQ(decode(), -EBADMSG);
  report.address[3] = ':';
  report.leaving = 2;
  EXPECT_EQ(decode(), -EBADMSG);
  report.leaving = 1;
  report.order = static_cast<Order>(3);
  EXPECT_EQ(decode(), -EBADMSG);
  report.order = Order::kDrain;
  EXPECT_EQ(decode(), 0);
  strcpy(report.zone, "rack 7");  // not printable
  EXPECT_EQ(decode(), -EBADMSG);
  report.zone[4] = '-';
  EXPECT_EQ(decode(), 0);
  EXPECT_STREQ(out.zone, "rack-7");
  memset(report.address, 'x', sizeof report.address);  // not terminated
  EXPECT_EQ(decode(), -EBADMSG);
}

TEST(Codec, ChecksReportsOfCopies) {
  CopiesReport report = {1, 2, 3, kUnknownEnd}, out;
  EXPECT_EQ(decode_copies(bytes_of(report), &out), 0);
  EXPECT_EQ(out.left_ms, kUnknownEnd);
  EXPECT_EQ(decode_copies(bytes_of(report).first(sizeof report - 1), &out), -EBADMSG);
  report.client = 0;
  EXPECT_EQ(decode_copies(bytes_of(report), &out), -EBADMSG);
}

TEST(Codec, ChecksCordons) {
  CordonRequest request = {}, out;
  auto decode = [&] { return decode_cordon(bytes_of(request), &out); };
  EXPECT_EQ(decode(), -EBADMSG);  // no address
  strcpy(request.address, "tcp://10.0.0.1:7170");
  EXPECT_EQ(decode(), 0);
  request.order = static_cast<Order>(3);
  EXPECT_EQ(decode(), -EBADMSG);
  request.order = Order::kDrain;
  request.zero = 1;
  EXPECT_EQ(decode(), -EBADMSG);
  request.zero = 0;
  EXPECT_EQ(decode_cordon(bytes_of(request).first(sizeof request - 1), &out), -EBADMSG);
  RegisterReply reply = {static_cast<Order>(3), 0}, taken;
  EXPECT_EQ(decode_register_reply(bytes_of(reply), &taken), -EBADMSG);
  reply = {Order::kDrain, 1};
  EXPECT_EQ(decode_register_reply(bytes_of(reply), &taken), -EBADMSG);
  reply = {Order::kDrain, 0};
  EXPECT_EQ(decode_register_reply(bytes_of(reply), &taken), 0);
  EXPECT_EQ(taken.order, Order::kDrain);
}

TEST(Codec, ChecksListsOfServers) {
  auto reply = std::make_unique<ServersReply>(), out = std::make_unique<ServersReply>();
  auto decode = [&] { return decode_servers(bytes_of(*reply), out.get()); };
  EXPECT_EQ(decode(), 0);
  reply->count = 1;
  EXPECT_EQ(decode(), -EBADMSG);  // no address
  strcpy(reply->servers[0].report.address, "tcp://a:1");
  EXPECT_EQ(decode(), -EBADMSG);  // no state
  reply->servers[0].state = ServerState::kSilent;
  EXPECT_EQ(decode(), 0);
  EXPECT_STREQ(out->servers[0].report.address, "tcp://a:1");
  reply->count = kMaxPoolServers + 1;
  EXPECT_EQ(decode(), -EBADMSG);
  EXPECT_EQ(decode_servers({}, out.get()), -EBADMSG);
}

TEST(Codec, ChecksOpeningsOfCalls) {
  CallOpen request = {kPageBytes, 3}, open = {};
  Bytes bytes = std::as_bytes(std::span(&request, 1));
  ASSERT_EQ(decode_call_open(bytes, &open), 0);
  EXPECT_EQ(open.base, kPageBytes);
  EXPECT_EQ(open.process, 3u);
  for (size_t size : {0, 8, 12}) EXPECT_EQ(decode_call_open(bytes.first(size), &open), -EBADMSG);
  request.process = kMaxCallProcesses;
  EXPECT_EQ(decode_call_open(bytes, &open), -EBADMSG);
  request = {kPageBytes + 1, 0};
  EXPECT_EQ(decode_call_open(bytes, &open), -EBADMSG);
}

TEST(Codec, ErrorTextIsMadePrintable) {
  ErrorReply error = make_error(ENOMEM, "no\nmemory"), out;
  EXPECT_EQ(decode_error(bytes_of(error), &out), -ENOMEM);
  EXPECT_STREQ(out.text, "no?memory");
  error.code = 0;
  EXPECT_EQ(decode_error(bytes_of(error), &out), -EBADMSG);
  error.code = 1;
  error.text_bytes = sizeof error.text;
  EXPECT_EQ(decode_error(bytes_of(error), &out), -EBADMSG);
}

}  // namespace
}  // namespace farside::wire
