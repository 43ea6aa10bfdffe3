#include "transport/file/file_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

namespace farside::transport {
namespace {

class FileQueueTest : public ::testing::TestWithParam<FileQueue::Mode> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/farside-queue-XXXXXX";
    fd_ = mkstemp(name);
    unlink(name);
  }
  ~FileQueueTest() override { close(fd_); }

  iocb request(uint16_t operation, iovec* piece, int64_t at, uint64_t data) {
    iocb r = {};
    r.aio_data = data;
    r.aio_lio_opcode = operation;
    r.aio_fildes = static_cast<uint32_t>(fd_);
    r.aio_buf = reinterpret_cast<uint64_t>(piece);
    r.aio_nbytes = 1;
    r.aio_offset = at;
    return r;
  }

  std::vector<io_event> finish(size_t count) {
    std::vector<io_event> all(count);
    for (size_t got = 0; got < count;) {
      size_t n = queue_.take({&all[got], count - got});
      if (n == 0) queue_.sleep(1'000'000'000);
      got += n;
    }
    return all;
  }

  int fd_ = -1;
  FileQueue queue_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(All, FileQueueTest,
                         ::testing::Values(FileQueue::Mode::kAsynchronous, FileQueue::Mode::kSynchronous));

TEST_P(FileQueueTest, KeepsManyInFlightAndRefusesMore) {
  constexpr unsigned kCount = FileQueue::kDepth + 1;
  std::vector<std::string> content(kCount), back(kCount, std::string(100, 0));
  std::vector<iovec> out(kCount), in(kCount);
  std::vector<iocb> requests(2 * kCount);
  for (unsigned i = 0; i < kCount; i++) {
    content[i] = std::string(100, static_cast<char>('a' + i % 26));
    out[i] = {content[i].data(), 100};
    in[i] = {back[i].data(), 100};
    requests[i] = request(IOCB_CMD_PWRITEV, &out[i], i * 100, i);
    requests[kCount + i] = request(IOCB_CMD_PREADV, &in[i], i * 100, i);
  }
  for (unsigned first : {0u, kCount}) {
    std::vector<iocb*> list;
    for (unsigned i = 0; i < kCount; i++) list.push_back(&requests[first + i]);
    size_t started = 0;
    for (size_t n; (n = queue_.submit({&list[started], kCount - started})) > 0;) started += n;
    EXPECT_EQ(started, FileQueue::kDepth);
    EXPECT_EQ(queue_.in_flight(), FileQueue::kDepth);
    for (const io_event& e : finish(started)) EXPECT_EQ(e.res, 100);
    EXPECT_EQ(queue_.submit({&list[started], 1}), 1u);
    EXPECT_EQ(finish(1)[0].data, kCount - 1);
  }
  EXPECT_EQ(back, content);
}

TEST_P(FileQueueTest, ErrorsAreResults) {
  char byte;
  iovec piece = {&byte, 1};
  iocb bad = request(IOCB_CMD_PREADV, &piece, 0, 7);
  bad.aio_fildes = 60000;
  iocb* list[] = {&bad};
  ASSERT_EQ(queue_.submit(list), 1u);
  io_event result = finish(1)[0];
  EXPECT_EQ(result.data, 7u);
  EXPECT_EQ(result.res, -EBADF);
  EXPECT_EQ(queue_.in_flight(), 0u);
}

}  // namespace
}  // namespace farside::transport
