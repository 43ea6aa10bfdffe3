#include "transport/file/file_queue.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/os.h"

namespace farside::transport {
namespace {

// The head of the memory that a context's number is the address of: stable since Linux 2.6, used by libaio and fio.
struct Ring {
  uint32_t id, size;
  uint32_t head, tail;
  uint32_t magic, compatible, incompatible, header_bytes;
  io_event events[];
};
constexpr uint32_t kMagic = 0xa10a10a1;

Ring* ring_of(aio_context_t context) { return reinterpret_cast<Ring*>(context); }

int set_up(aio_context_t* context) {
  *context = 0;
  long r = os::call(SYS_io_setup, FileQueue::kDepth, context);
  return r < 0 ? static_cast<int>(r) : 0;
}

}  // namespace

FileQueue::FileQueue(Mode mode) {
  if (mode == Mode::kSynchronous) return;
  if (set_up(&context_) < 0) {
    context_ = 0;
    return;
  }
  if (ring_of(context_)->magic == kMagic && ring_of(context_)->incompatible == 0) return;
  os::call(SYS_io_destroy, context_);
  context_ = 0;
}

FileQueue::~FileQueue() {
  if (context_) os::call(SYS_io_destroy, context_);
}

int FileQueue::probe() {
  aio_context_t context;
  int r = set_up(&context);
  if (r == 0) os::call(SYS_io_destroy, context);
  return r;
}

size_t FileQueue::submit(std::span<iocb* const> requests) {
  size_t count = std::min<size_t>(requests.size(), kDepth - in_flight_);
  if (count == 0) return 0;
  long started = context_ ? os::call(SYS_io_submit, context_, count, requests.data()) : 0;
  if (started > 0) {
    in_flight_ += static_cast<unsigned>(started);
    return static_cast<size_t>(started);
  }
  if (started == -EAGAIN && in_flight_ > 0) return 0;
  iocb* first = requests[0];
  return keep({first->aio_data, 0, context_ && started != -EAGAIN ? started : execute(*first), 0});
}

size_t FileQueue::keep(const io_event& result) {
  FARSIDE_CHECK(kept_count_ < kDepth);
  kept_[kept_count_++] = result;
  in_flight_++;
  return 1;
}

int64_t FileQueue::execute(const iocb& request) {
  long number = request.aio_lio_opcode == IOCB_CMD_PREADV ? SYS_preadv : SYS_pwritev;
  long r;
  do {
    r = os::call(number, request.aio_fildes, request.aio_buf, request.aio_nbytes, request.aio_offset, 0);
  } while (r == -EINTR);
  return r;
}

size_t FileQueue::take(std::span<io_event> results) {
  size_t count = 0;
  while (count < results.size() && kept_count_ > 0) results[count++] = kept_[--kept_count_];
  if (context_) {
    Ring* ring = ring_of(context_);
    uint32_t head = ring->head, tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    for (; count < results.size() && head != tail; head = head + 1 == ring->size ? 0 : head + 1) {
      results[count++] = ring->events[head];
    }
    if (head != ring->head) __atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
  }
  FARSIDE_CHECK(count <= in_flight_);
  in_flight_ -= static_cast<unsigned>(count);
  return count;
}

void FileQueue::sleep(uint64_t timeout_ns) {
  if (!context_ || kept_count_ > 0 || in_flight_ == 0) return;
  timespec timeout = {static_cast<time_t>(timeout_ns / 1'000'000'000), static_cast<long>(timeout_ns % 1'000'000'000)};
  if (os::call(SYS_io_getevents, context_, 1, 1, kept_, &timeout) == 1) kept_count_ = 1;
}

}  // namespace farside::transport
