#include "sandbox/sandbox.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "sandbox/test_functions.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::sandbox {
namespace {

constexpr uint64_t kMiB = 1 << 20, kPage = 4096, kRegionBytes = 64 * kMiB;
constexpr uint64_t kBase = 0x7e0000000000;

uint64_t offset_of(const char* path, const char* symbol) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  link_map* map = nullptr;
  dlinfo(library, RTLD_DI_LINKMAP, &map);
  return reinterpret_cast<uint64_t>(dlsym(library, symbol)) - map->l_addr;
}

class SandboxTest : public testing::Test {
 protected:
  SandboxTest() {
    region_ = memfd_create("region", 0);
    EXPECT_EQ(ftruncate(region_, kRegionBytes + sizeof(wire::RegionTrailer)), 0);
    words_ = static_cast<uint64_t*>(mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_, 0));
    setup_.program = FARSIDE_OFFLOAD_HOST;
    setup_.region_fd = region_;
    setup_.base = kBase;
    setup_.objects = {open(FARSIDE_TEST_FUNCTIONS, O_RDONLY)};
    setup_.limits = {16 * kMiB, 300'000'000, 2'000'000'000, 64 * kMiB};
  }
  ~SandboxTest() override {
    sandbox_.reset();
    munmap(words_, kRegionBytes);
    close(region_);
    for (int fd : setup_.objects) close(fd);
  }

  bool start() {
    auto started = Sandbox::start(setup_, [] { return false; });
    if (!started.ok()) ADD_FAILURE() << started.status().text();
    else sandbox_ = std::move(*started);
    return started.ok();
  }

  static std::vector<std::byte> frame_of(uint64_t entry, const TestArguments& arguments,
                                         const std::vector<wire::CallRange>& ranges, uint64_t function = 0,
                                         uint64_t request = 1) {
    std::vector<std::byte> payload(sizeof(wire::CallRequest) + ranges.size() * sizeof(wire::CallRange) +
                                   sizeof arguments);
    wire::CallRequest head = {0, 0, entry, function, static_cast<uint32_t>(ranges.size()), sizeof arguments};
    memcpy(payload.data(), &head, sizeof head);
    if (!ranges.empty()) memcpy(payload.data() + sizeof head, ranges.data(), ranges.size() * sizeof(wire::CallRange));
    memcpy(payload.data() + payload.size() - sizeof arguments, &arguments, sizeof arguments);
    wire::CallPayload decoded;
    EXPECT_EQ(wire::decode_call(payload, kRegionBytes, &decoded), 0);
    auto header = wire::make_header(wire::Op::kCall, 0, request, static_cast<uint32_t>(payload.size()));
    header.crc = wire::crc32c(wire::header_crc(header), payload.data(), payload.size());
    std::vector<std::byte> frame(sizeof header);
    memcpy(frame.data(), &header, sizeof header);
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
  }

  // Calls a function at this offset; 0: none. The status of the reply.
  int call_at(uint64_t entry, const TestArguments& arguments, const std::vector<wire::CallRange>& ranges,
              uint64_t function = 0) {
    if (!sandbox_ && !start()) return -1;
    std::vector<std::byte> frame = frame_of(entry, arguments, ranges, function);
    reply_.resize(sizeof(wire::CallReply) + wire::kMaxCallBytes);
    if (!sandbox_->call(
            frame, [this] { return abandon_.load(); }, reply_.data()))
      sandbox_.reset();
    wire::CallReply header;
    memcpy(&header, reply_.data(), sizeof header);
    text_.assign(reinterpret_cast<char*>(reply_.data()) + sizeof header, header.result_bytes);
    started_ = header.started != 0;
    return header.status;
  }
  int call(const char* function, const TestArguments& arguments = {}, const std::vector<wire::CallRange>& ranges = {}) {
    return call_at(offset_of(FARSIDE_TEST_FUNCTIONS, function), arguments, ranges);
  }
  uint64_t result() const {
    uint64_t value = 0;
    memcpy(&value, text_.data(), std::min(text_.size(), sizeof value));
    return value;
  }
  // The next call works, in a new process if necessary.
  void expect_alive() {
    EXPECT_EQ(call("count_calls"), 0) << text_;
    EXPECT_GE(result(), 1u);
  }
  static uint64_t* at(uint64_t offset) { return reinterpret_cast<uint64_t*>(kBase + offset); }

  sandbox::Setup setup_;
  std::unique_ptr<Sandbox> sandbox_;
  int region_;
  uint64_t* words_;
  std::vector<std::byte> reply_;
  std::string text_;
  bool started_ = false;
  std::atomic<bool> abandon_{false};
};

TEST_F(SandboxTest, FunctionsSeeTheRangesAtTheAddressesOfTheClient) {
  for (uint64_t i = 0; i < 1000; i++) words_[kPage / 8 + i] = i;
  ASSERT_EQ(call("sum", {at(kPage), 1000, 0}, {{kPage, 2 * kPage, 0}}), 0) << text_;
  EXPECT_EQ(result(), 999u * 500);
  ASSERT_EQ(call("fill", {at(4 * kPage), 512, 7}, {{kPage, kPage, 0}, {4 * kPage, kPage, 1}}), 0) << text_;
  EXPECT_EQ(words_[4 * kPage / 8 + 511], 7u + 511);
}

TEST_F(SandboxTest, TheProcessStaysBetweenCalls) {
  EXPECT_EQ(call("count_calls"), 0);
  EXPECT_EQ(call("count_calls"), 0);
  EXPECT_EQ(result(), 2u);
}

TEST_F(SandboxTest, ErrorsOfFunctionsAreErrorsOfTheCall) {
  EXPECT_EQ(call("fail"), -ERANGE);
  EXPECT_EQ(text_, "no luck");
  EXPECT_TRUE(started_);
  expect_alive();
}

TEST_F(SandboxTest, FunctionsArePassedToTheEntry) {
  uint64_t entry = offset_of(FARSIDE_TEST_FUNCTIONS, "call_function"),
           twice = offset_of(FARSIDE_TEST_FUNCTIONS, "twice");
  EXPECT_EQ(call_at(entry, {nullptr, 0, 21}, {}, twice), 0);
  EXPECT_EQ(result(), 42u);
}

TEST_F(SandboxTest, FunctionsMayThrowAndCatch) {
  EXPECT_EQ(call("throw_and_catch"), 0) << text_;
  EXPECT_EQ(result(), 6u);
}

TEST_F(SandboxTest, OnlyCodeOfTheObjectsIsCalled) {
  for (uint64_t offset : {uint64_t{0}, uint64_t{64}, uint64_t{1} << 40, ~uint64_t{0}}) {
    EXPECT_EQ(call_at(offset, {}, {}), -ENOEXEC);
    EXPECT_FALSE(started_);
  }
  expect_alive();
}

TEST_F(SandboxTest, AccessesOutsideOfTheRangesEndTheProcess) {
  std::vector<wire::CallRange> first = {{0, kPage, 0}};
  EXPECT_EQ(call("sum", {at(0), 512, 0}, first), 0);
  EXPECT_EQ(call("sum", {at(0), 513, 0}, first), -EFAULT) << "reads the next page";
  EXPECT_EQ(call("fill", {at(0), 1, 5}, first), -EFAULT) << "writes what is only read";
  EXPECT_EQ(words_[0], 0u);
  EXPECT_EQ(call("sum", {at(0), 512, 0}), -EFAULT) << "ranges of earlier calls are gone";
  expect_alive();
}

// Ranges of earlier calls are moved aside and come back; ranges may overlap those of earlier calls in any way.
TEST_F(SandboxTest, EachCallSeesItsRangesOnly) {
  ASSERT_TRUE(start());
  int pid = sandbox_->pid();
  std::vector<wire::CallRange> choices;
  for (uint64_t first = 0; first < 4; first++) {
    for (uint64_t pages : {3, 128, 600}) {  // the first is not moved but unmapped
      for (uint64_t written = 0; written <= 1; written++)
        choices.push_back({(511 + first) * kPage, pages * kPage, written});  // across the border of a page table
    }
  }
  for (uint64_t round = 0; round < 150; round++) {
    const wire::CallRange& r = choices[round * 7 % choices.size()];
    uint64_t count = r.bytes / 8, sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += words_[r.offset / 8 + i] = round * i;
    ASSERT_EQ(call("sum", {at(r.offset), count, 0}, {r}), 0) << round << ": " << text_;
    ASSERT_EQ(result(), sum) << round;
    if (r.written == 0) continue;
    ASSERT_EQ(call("fill", {at(r.offset), count, round}, {r}), 0) << text_;
    ASSERT_EQ(words_[r.offset / 8 + count - 1], round + count - 1);
  }
  EXPECT_EQ(sandbox_->pid(), pid);
  for (const wire::CallRange& r : choices) {
    ASSERT_EQ(call("sum", {at(r.offset), r.bytes / 8, 0}, {r}), 0) << text_;
    ASSERT_EQ(call("sum", {at(r.offset), 1, 0}, {{0, kPage, 0}}), -EFAULT);
  }
}

uint64_t page_faults(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  for (int field = 1; field <= 10; field++) file >> word;  // the name has no space
  return std::stoull(word);
}

// Large ones are moved with their page tables, small ones are opened and closed.
TEST_F(SandboxTest, RangesThatAreUsedAgainTakeNoPageFaults) {
  for (uint64_t bytes : {16 * kMiB, 64 * kPage}) {
    ASSERT_TRUE(start());
    uint64_t before = 0;
    for (uint64_t round = 0; round < 6; round++) {
      if (round == 2) before = page_faults(sandbox_->pid());
      for (uint64_t offset = 0; offset < 4 * bytes; offset += bytes)
        ASSERT_EQ(call("sum", {at(offset), bytes / 8, 0}, {{offset, bytes, 0}}), 0) << text_;
    }
    EXPECT_LT(page_faults(sandbox_->pid()) - before, 50U) << bytes;
  }
}

// More ranges, and more addresses, than are kept.
TEST_F(SandboxTest, RangesOfManyCallsAreForgotten) {
  for (uint64_t round = 0; round < 3; round++) {
    for (uint64_t first = 0; first < 8; first++) {
      std::vector<wire::CallRange> ranges;
      for (uint64_t i = 0; i < 127; i++) ranges.push_back({(i * 128 + first) * kPage, 128 * kPage, 0});
      words_[ranges.back().offset / 8] = round * 100 + first;
      ASSERT_EQ(call("sum", {at(ranges.back().offset), 1, 0}, ranges), 0) << text_;
      ASSERT_EQ(result(), round * 100 + first);
    }
  }
}

TEST_F(SandboxTest, CrashesAreErrors) {
  for (const char* function : {"crash", "use_all_stack", "call_abort", "leave", "lie"}) {
    EXPECT_EQ(call(function), -EFAULT) << function << ": " << text_;
    expect_alive();
  }
}

TEST_F(SandboxTest, SystemCallsEndTheProcess) {
  for (const char* function : {"fork_bomb", "connect_somewhere", "kill_all"}) {
    EXPECT_EQ(call(function), -EFAULT) << function;
    EXPECT_NE(text_.find("system call"), std::string::npos) << function << ": " << text_;
    expect_alive();
  }
}

TEST_F(SandboxTest, HarmlessSystemCallsFail) {
  EXPECT_EQ(call("open_file"), -EPERM);
  EXPECT_EQ(call("map_executable"), 0);
  EXPECT_EQ(result(), 1u);
  EXPECT_EQ(call("map_shared"), 0) << "memory that no limit counts";
  EXPECT_EQ(result(), 1u);
  EXPECT_EQ(call("make_writable"), 0);
  EXPECT_EQ(result(), 1u);
}

TEST_F(SandboxTest, ProcessorTimeIsLimited) {
  setup_.limits.wall_ns = 100'000'000'000;
  uint64_t start = now_ns();
  EXPECT_EQ(call("loop"), -ETIME);
  EXPECT_LT(now_ns() - start, setup_.limits.wall_ns / 2);  // also on a machine that stands still for seconds
  expect_alive();
}

TEST_F(SandboxTest, MemoryIsLimited) {
  EXPECT_EQ(call("allocate_all"), 0) << text_;
  EXPECT_LE(result(), 32 * kMiB);
}

TEST_F(SandboxTest, TheCallerMayGiveUp) {
  setup_.limits.cpu_ns = 100'000'000'000;
  ASSERT_TRUE(start());
  abandon_ = true;
  EXPECT_EQ(call("loop"), -ECANCELED);
}

TEST_F(SandboxTest, WhatIsNoObjectIsNotLoaded) {
  int fd = memfd_create("text", 0);
  ASSERT_EQ(write(fd, "no object", 9), 9);
  setup_.objects.push_back(fd);
  auto started = Sandbox::start(setup_, [] { return false; });
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.status().code(), ENOEXEC);
  EXPECT_NE(std::string(started.status().text()).find("cannot load"), std::string::npos);
}

TEST_F(SandboxTest, MissingSymbolsAreNamed) {
  setup_.objects.push_back(open(FARSIDE_TEST_MISSING, O_RDONLY));
  auto started = Sandbox::start(setup_, [] { return false; });
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.status().code(), ENOEXEC);
  EXPECT_NE(std::string(started.status().text()).find("no_such_symbol"), std::string::npos) << started.status().text();
}

TEST_F(SandboxTest, TheIsolationIsThatOfTheDocumentation) {
  ASSERT_TRUE(start());
  int pid = sandbox_->pid();
  auto link = [](int of, const char* name) {
    char target[64] = {};
    std::string path = "/proc/" + std::to_string(of) + "/ns/" + name;
    return readlink(path.c_str(), target, sizeof target - 1) > 0 ? std::string(target) : std::string();
  };
  for (const char* name : {"user", "pid", "mnt", "net", "ipc", "uts"})
    EXPECT_NE(link(pid, name), link(getpid(), name)) << name;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string all(std::istreambuf_iterator<char>(status), {});
  for (const char* line : {"Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000",
                           "CapBnd:\t0000000000000000", "Threads:\t1"})
    EXPECT_NE(all.find(line), std::string::npos) << line << "\n" << all;
  bool is_root = geteuid() == 0;
  EXPECT_EQ(all.find("Uid:\t65534\t65534") != std::string::npos, is_root) << all;
}

// The process has the client's connection, whose other end is the test's.
class ConnectionTest : public SandboxTest {
 protected:
  ConnectionTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    client_ = pair[0];
    setup_.connection_fd = pair[1];
    trailer_ = static_cast<wire::RegionTrailer*>(
        mmap(nullptr, sizeof *trailer_, PROT_READ | PROT_WRITE, MAP_SHARED, region_, kRegionBytes));
  }
  ~ConnectionTest() override {
    abandon_ = true;
    if (server_.joinable()) server_.join();
    munmap(trailer_, sizeof *trailer_);
    close(client_);
    close(setup_.connection_fd);
  }

  // Gives the process the connection, with what was received of it.
  void give(std::vector<std::byte> received) {
    if (server_.joinable()) server_.join();
    received_ = std::move(received);
    reply_.resize(sizeof(wire::CallReply) + wire::kMaxCallBytes);
    server_ = std::thread([this] {
      served_ = sandbox_->serve(
          &received_, [this] { return abandon_.load(); }, &request_, reply_.data());
    });
  }
  Sandbox::Served wait() {
    server_.join();
    return served_;
  }
  void send(const std::vector<std::byte>& bytes) {
    ASSERT_EQ(::send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // The reply's result, a word, to this request.
  uint64_t receive(uint64_t request) {
    struct {
      wire::FrameHeader header;
      wire::CallReply reply;
      uint64_t word;
    } frame;
    EXPECT_EQ(recv(client_, &frame, sizeof frame, MSG_WAITALL), static_cast<ssize_t>(sizeof frame));
    EXPECT_EQ(wire::check_reply_header(frame.header), 0);
    EXPECT_EQ(frame.header.request, request);
    EXPECT_EQ(frame.reply.status, 0);
    EXPECT_EQ(wire::crc32c(wire::header_crc(frame.header), &frame.reply, frame.header.payload_bytes), frame.header.crc);
    return frame.word;
  }
  std::vector<std::byte> sum_of(uint64_t first_word, uint64_t count, uint64_t request) {
    return frame_of(function("sum"), {at(first_word * 8), count, 0}, {{0, 16 * kPage, 0}}, 0, request);
  }
  static uint64_t function(const char* name) { return offset_of(FARSIDE_TEST_FUNCTIONS, name); }

  int client_;
  wire::RegionTrailer* trailer_;
  std::thread server_;
  Sandbox::Served served_;
  std::vector<std::byte> received_;
  uint64_t request_ = 0;
};

TEST_F(ConnectionTest, CallsAreExecutedUntilTheClientSendsSomethingElse) {
  ASSERT_TRUE(start());
  for (uint64_t i = 0; i < 100; i++) words_[i] = i;
  std::vector<std::byte> both = sum_of(0, 10, 1), second = sum_of(10, 10, 2);
  both.insert(both.end(), second.begin(), second.begin() + 30);  // the rest has not arrived
  give(both);
  EXPECT_EQ(receive(1), 45u);
  send({second.begin() + 30, second.end()});
  EXPECT_EQ(receive(2), 145u);
  for (uint64_t request = 3; request < 200; request++) {
    send(sum_of(request % 50, 2, request));
    ASSERT_EQ(receive(request), 2 * (request % 50) + 1);
  }
  EXPECT_EQ(sandbox_->calls(), 199u);
  auto ping = wire::make_header(wire::Op::kPing, 0, 200, 0);
  std::vector<std::byte> other(sizeof ping);
  memcpy(other.data(), &ping, sizeof ping);
  std::vector<std::byte> all = sum_of(1, 1, 199);
  all.insert(all.end(), other.begin(), other.end());
  send(all);
  EXPECT_EQ(receive(199), 1u);
  EXPECT_EQ(wait(), Sandbox::Served::kGivenBack);
  EXPECT_EQ(received_, other);
  give(sum_of(5, 1, 201));
  EXPECT_EQ(receive(201), 5u) << "the same process";
  close(std::exchange(client_, -1));
  EXPECT_EQ(wait(), Sandbox::Served::kLost);
}

TEST_F(ConnectionTest, WhatIsDamagedIsGivenBack) {
  ASSERT_TRUE(start());
  std::vector<std::byte> damaged = sum_of(0, 10, 1);
  damaged.back() ^= std::byte{1};
  for (const auto& frame : {damaged, std::vector<std::byte>(100, std::byte{7})}) {
    give(frame);
    EXPECT_EQ(wait(), Sandbox::Served::kGivenBack);
    EXPECT_EQ(received_, frame);
  }
}

TEST_F(ConnectionTest, CallsOfRegionsWithSnapshotsAreGivenBack) {
  ASSERT_TRUE(start());
  words_[0] = 5;
  give(sum_of(0, 1, 1));
  EXPECT_EQ(receive(1), 5u);
  trailer_->live_overlays = 1;
  send(sum_of(0, 1, 2));
  EXPECT_EQ(wait(), Sandbox::Served::kGivenBack);
  EXPECT_EQ(received_, sum_of(0, 1, 2));
  trailer_->live_overlays = 0;
}

TEST_F(ConnectionTest, TheEndOfTheProcessIsTheReplyToItsCall) {
  struct {
    const char* name;
    int status;
  } kFunctions[] = {{"crash", -EFAULT}, {"leave", -EFAULT}, {"loop", -ETIME}, {"lie", -ETIME}};
  for (const auto& [name, status] : kFunctions) {
    ASSERT_TRUE(start());
    give(sum_of(0, 1, 6));
    receive(6);
    send(frame_of(function(name), {}, {}, 0, 7));
    EXPECT_EQ(wait(), Sandbox::Served::kFailed) << name;
    EXPECT_EQ(request_, 7u);
    wire::CallReply reply;
    memcpy(&reply, reply_.data(), sizeof reply);
    EXPECT_EQ(reply.status, status) << name;
    char drain[4096];
    while (recv(client_, drain, sizeof drain, MSG_DONTWAIT) > 0) {}
  }
}

TEST_F(ConnectionTest, TheServerMayGiveUpAnIdleProcess) {
  ASSERT_TRUE(start());
  give(sum_of(0, 1, 1));
  receive(1);
  abandon_ = true;
  EXPECT_EQ(wait(), Sandbox::Served::kLost);
}

// 32 MiB are for the process and its libraries (kOwnBytes in host.cc).
TEST_F(SandboxTest, WhatConstructorsTakeIsBounded) {
  close(setup_.objects[0]);
  setup_.objects = {open(FARSIDE_TEST_HUNGRY, O_RDONLY)};
  setup_.limits.cpu_ns = setup_.limits.wall_ns = 100'000'000'000;  // of memory, on any machine
  ASSERT_EQ(call_at(offset_of(FARSIDE_TEST_HUNGRY, "count_memory"), {}, {}), 0) << text_;
  uint64_t got[2] = {};
  ASSERT_EQ(text_.size(), sizeof got);
  memcpy(got, text_.data(), sizeof got);
  EXPECT_EQ(got[0], 0u);
  EXPECT_GE(got[1], setup_.limits.memory / 2);
  EXPECT_LE(got[1], setup_.limits.memory + 33 * kMiB);
}

}  // namespace
}  // namespace farside::sandbox
