#include "transport/shm.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "transport/ranges.h"
#include "transport/waiting.h"
#include "wire/protocol.h"

namespace farside::transport {

namespace {

// nullptr, with the reason in *status.
std::byte* map_file(int fd, uint64_t bytes, Status* status) {
  long r = os::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (os::is_error(r)) {
    *status = Status::error(static_cast<int>(-r),
                            "cannot map {} bytes of far memory; choose a smaller --tune space or raise "
                            "the address space limit (ulimit -v)",
                            bytes);
    return nullptr;
  }
  // A core dump of the program would read, and write out, all that the region holds.
  os::madvise(reinterpret_cast<void*>(r), bytes, MADV_DONTDUMP);
  return reinterpret_cast<std::byte*>(r);
}

}  // namespace

std::unique_ptr<ShmRegion> ShmRegion::map(const Files& files, uint64_t region_bytes, Link link, Status* status) {
  std::byte* base = map_file(files.memory, region_bytes + sizeof(wire::RegionTrailer), status);
  if (!base) return nullptr;
  bool is_packed = files.packed >= 0;
  std::byte* packed = is_packed ? map_file(files.packed, packed::file_bytes(region_bytes), status) : nullptr;
  if (is_packed && !packed) {
    os::munmap(base, region_bytes + sizeof(wire::RegionTrailer));
    return nullptr;
  }
  return std::unique_ptr<ShmRegion>(new ShmRegion(base, packed, region_bytes, files, link));
}

ShmRegion::ShmRegion(std::byte* base, std::byte* packed, uint64_t bytes, const Files& files, Link link)
    : base_(base),
      packed_(packed),
      bytes_(bytes),
      files_(files),
      latency_ticks_(link.latency_us > 0 ? static_cast<uint64_t>(link.latency_us * ticks_per_us()) : 0),
      ticks_per_byte_(link.gbps > 0 ? 8 / (link.gbps * 1000) * ticks_per_us() : 0) {
  if (packed) pages_ = packed::PackedPages(packed, bytes);
}

ShmRegion::~ShmRegion() {
  os::munmap(base_, bytes_ + sizeof(wire::RegionTrailer));
  if (packed_) os::munmap(packed_, packed::file_bytes(bytes_));
}

int ShmRegion::read(const ByteRange& range, packed::Unpacker& unpacker) {
  auto* to = static_cast<std::byte*>(range.near);
  if (packed_) return pages_.read(*this, range.far, to, range.bytes, unpacker);
  return to ? read(range.far, to, range.bytes) : 0;
}

int ShmRegion::begin_write(const ByteRange& range, packed::Unpacker& unpacker) {
  return packed_ ? pages_.begin_write(*this, range.far, range.bytes, unpacker) : 0;
}

void ShmRegion::end_write(const ByteRange& range) {
  if (packed_) pages_.end_write(range.far, range.bytes);
}

int ShmRegion::discard(const ByteRange& range, packed::Unpacker& unpacker) {
  if (packed_) return pages_.discard(*this, files_.packed, range.far, range.bytes, unpacker);
  return punch(range.far, range.bytes);
}

int ShmRegion::read(uint64_t offset, std::byte* to, size_t bytes) {
  memcpy(to, at(offset), bytes);
  return 0;
}
int ShmRegion::write(uint64_t offset, const std::byte* from, size_t bytes) {
  memcpy(at(offset), from, bytes);
  return 0;
}
int ShmRegion::punch(uint64_t offset, uint64_t bytes) { return os::punch_hole(files_.memory, offset, bytes); }
bool ShmRegion::may_be_freeing() {
  pollfd p = {files_.connection, POLLRDHUP, 0};
  bool server_ended = os::poll(&p, 1, 0) > 0;
  return !server_ended;
}

bool ShmRegion::has_overlays() const {
  auto* trailer = reinterpret_cast<const wire::RegionTrailer*>(base_ + bytes_);
  return __atomic_load_n(&trailer->live_overlays, __ATOMIC_ACQUIRE) != 0;
}

uint64_t ShmRegion::completion_tick(uint64_t transfer_bytes) {
  if (latency_ticks_ == 0 && ticks_per_byte_ == 0) return 0;
  uint64_t now = ticks();
  if (ticks_per_byte_ == 0) return now + latency_ticks_;
  auto duration = static_cast<uint64_t>(static_cast<double>(transfer_bytes) * ticks_per_byte_);
  uint64_t free_at = link_free_at_.load(std::memory_order_relaxed), end;
  do {
    end = std::max(now, free_at) + duration;
  } while (!link_free_at_.compare_exchange_weak(free_at, end, std::memory_order_relaxed));
  return end + latency_ticks_;
}

int ShmChannel::submit_read(std::span<const ByteRange> ranges, Token* token) {
  uint64_t bytes;
  if (int r = check(ranges, kMaxRequestBytes, &bytes); r < 0) return r;
  Request* request = free_request();
  if (!request) return -EAGAIN;
  bool deferred = region_->is_packed() && bytes > packed::kPageBytes;
  if (deferred) {
    defer_read(request, ranges);
    return finish_submit(request, bytes, token);
  }
  for (const ByteRange& range : ranges) {
    if (int r = region_->read(range, unpacker_); r < 0) return r;
  }
  return finish_submit(request, bytes, token);
}

// What is read ahead is decompressed by the evictor that polls for it.
void ShmChannel::defer_read(Request* request, std::span<const ByteRange> ranges) {
  if (request->room < ranges.size()) {
    near_free(request->ranges, request->room * sizeof(ByteRange));
    request->ranges = static_cast<ByteRange*>(near_alloc(ranges.size() * sizeof(ByteRange)));
    request->room = ranges.size();
  }
  request->count = ranges.size();
  memcpy(request->ranges, ranges.data(), ranges.size_bytes());
}

int ShmChannel::execute_read(Request* request) {
  size_t count = std::exchange(request->count, 0);
  for (size_t i = 0; i < count; i++) {
    if (int r = region_->read(request->ranges[i], unpacker_); r < 0) return r;
  }
  return 0;
}

int ShmChannel::submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) {
  uint64_t bytes;
  if (int r = check(ranges, kMaxRequestBytes, &bytes); r < 0) return r;
  Request* request = free_request();
  if (!request) return -EAGAIN;
  if (region_->has_overlays()) {
    if (!stream_ready()) return -ECONNRESET;
    Token inner;
    int r = stream_->submit_write(ranges, pipe, &inner);
    return finish_submit_on_stream(request, r, inner, token);
  }
  if (int r = write_in_place(ranges, pipe, bytes); r < 0) return r;
  return finish_submit(request, bytes, token);
}

int ShmChannel::submit_discard(std::span<const ByteRange> ranges, Token* token) {
  uint64_t bytes;
  if (int r = check(ranges, kNoByteLimit, &bytes); r < 0) return r;
  Request* request = free_request();
  if (!request) return -EAGAIN;
  if (region_->has_overlays()) {
    if (!stream_ready()) return -ECONNRESET;
    Token inner;
    int r = stream_->submit_discard(ranges, &inner);
    return finish_submit_on_stream(request, r, inner, token);
  }
  for (const ByteRange& range : ranges) {
    if (int r = region_->discard(range, unpacker_); r < 0) return r;
  }
  return finish_submit(request, 0, token);
}

int ShmChannel::poll(Token token) {
  Request* request = find(token);
  if (!request) return -EINVAL;
  int r = execute_read(request);
  if (r == 0 && request->stream_token) r = stream_->poll(request->stream_token);
  else if (r == 0) r = request->ready_tick == 0 || ticks() >= request->ready_tick;
  if (r != 0) request->token = 0;
  return r;
}

int ShmChannel::wait(Token token, uint64_t timeout_ns) {
  Request* request = find(token);
  if (!request) return -EINVAL;
  if (request->stream_token) {
    int r = stream_->wait(request->stream_token, timeout_ns);
    if (r != -ETIMEDOUT) request->token = 0;
    return r;
  }
  // Only the simulated latency is left to wait for. The thread sleeps through most of a long one, as it would until a
  // reply comes; polling the rest makes it exact.
  const uint64_t start = now_ns(), latency = remaining_ns(*request);
  if (latency > 2 * kWakeUpNs) os::nanosleep_ns(std::min(latency - kWakeUpNs, timeout_ns));
  while (poll(token) == 0) {
    if (now_ns() - start >= timeout_ns) return -ETIMEDOUT;
    cpu_relax();
  }
  return 0;
}

uint64_t ShmChannel::remaining_ns(const Request& request) {
  const uint64_t now = ticks();
  if (request.ready_tick <= now) return 0;
  return static_cast<uint64_t>(static_cast<double>(request.ready_tick - now) * 1000 / ticks_per_us());
}

int ShmChannel::check(std::span<const ByteRange> ranges, uint64_t max_bytes, uint64_t* total) const {
  if (int r = check_ranges(ranges, max_bytes, total); r < 0) return r;
  for (const ByteRange& s : ranges) {
    if (s.bytes > region_->bytes() || s.far > region_->bytes() - s.bytes) return -ERANGE;
  }
  return 0;
}

int ShmChannel::write_in_place(std::span<const ByteRange> ranges, int pipe, uint64_t bytes) {
  for (const ByteRange& range : ranges) {
    if (int r = region_->begin_write(range, unpacker_); r < 0) return r;
  }
  int r = 0;
  if (pipe >= 0) r = write_from_pipe(ranges, pipe, bytes);
  else
    for (const ByteRange& range : ranges) memcpy(region_->at(range.far), range.near, range.bytes);
  for (const ByteRange& range : ranges) region_->end_write(range);
  return r;
}

int ShmChannel::write_from_pipe(std::span<const ByteRange> ranges, int pipe, uint64_t bytes) {
  for (size_t i = 0; i < ranges.size(); i++) pieces_[i] = {region_->at(ranges[i].far), ranges[i].bytes};
  return read_pipe(pipe, pieces_, static_cast<int>(ranges.size()), bytes);
}

int ShmChannel::finish_submit(Request* request, uint64_t bytes, Token* token) {
  request->token = *token = (++sequence_ * kMaxInFlight) | static_cast<size_t>(request - requests_);
  request->stream_token = 0;
  request->ready_tick = region_->completion_tick(bytes);
  return 0;
}

int ShmChannel::finish_submit_on_stream(Request* request, int submitted, Token stream_token, Token* token) {
  if (submitted < 0) return submitted;
  request->token = *token = (++sequence_ * kMaxInFlight) | static_cast<size_t>(request - requests_);
  request->stream_token = stream_token;
  return 0;
}

bool ShmChannel::stream_ready() {
  if (stream_) return true;
  Status status;
  stream_ = StreamChannel::open(*dialer_, &status);
  return stream_ != nullptr;
}

ShmChannel::Request* ShmChannel::free_request() { return transport::free_request(requests_); }

ShmChannel::Request* ShmChannel::find(Token token) { return find_request(requests_, token); }

}  // namespace farside::transport
