#include "transport/file/file_channel.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "transport/ranges.h"
#include "wire/crc32c.h"

namespace farside::transport {
namespace {

constexpr size_t kAlignment = 512;  // of the memory for direct I/O
constexpr unsigned kGathered = 16;  // transfers that are delayed at most

uint32_t checksum(const std::byte* content) { return wire::crc32c(0, content, kPageSize); }

}  // namespace

// Slots that were taken for writes without a result are released; nothing writes to them any more.
FileChannel::~FileChannel() {
  queue_.reset();
  for (Request& r : requests_) {
    if (r.token != 0 && r.writes && r.result == kInFlight) release_slots(r);
  }
}

int FileChannel::check(std::span<const ByteRange> ranges, uint64_t max_bytes, uint64_t* total) const {
  if (error_) return error_;
  if (int r = check_ranges(ranges, max_bytes, total); r < 0) return r;
  for (const ByteRange& s : ranges) {
    if (s.bytes > file_.region->bytes() || s.far > file_.region->bytes() - s.bytes) return -ERANGE;
  }
  return 0;
}

// ---- Plans: which parts of which pages ----

void FileChannel::begin(Request& r, size_t max_parts, bool writes) {
  r.writes = writes;
  r.publishes = false;
  r.result = kInFlight;
  r.parts = r.pages = r.runs = r.next_run = r.runs_left = 0;
  r.part.make_room(max_parts);
  r.page.make_room(max_parts);
  r.run.make_room(max_parts);
  r.vector.make_room(max_parts);
}

void FileChannel::add_segment(Request& r, uint64_t far, uint64_t bytes, std::byte* near) {
  for (uint64_t end = far + bytes; far < end;) {
    auto offset = static_cast<uint32_t>(far % kPageSize);
    auto step = static_cast<uint32_t>(std::min<uint64_t>(kPageSize - offset, end - far));
    add_part(r, far / kPageSize, offset, step, near);
    far += step;
    if (near) near += step;
  }
}

void FileChannel::add_part(Request& r, uint64_t index, uint32_t offset, uint32_t bytes, std::byte* near) {
  uint32_t part = r.parts++;
  r.part[part] = {near, offset, bytes, kNone};
  uint32_t at = find_page(r, index);
  if (at < r.pages) {
    r.part[std::exchange(r.page[at].last, part)].next = part;
    return;
  }
  r.page[r.pages++] = {index, file_.region->word(index), nullptr, part, part, 0, false, false};
}

// The page with this index, or r.pages. Nearly all lists are sorted.
uint32_t FileChannel::find_page(Request& r, uint64_t index) {
  if (r.pages == 0) r.is_sorted = true;
  if (r.pages == 0 || (r.is_sorted && r.page[r.pages - 1].index < index)) return r.pages;
  r.is_sorted = r.is_sorted && r.page[r.pages - 1].index == index;
  for (uint32_t i = r.pages; i-- > 0;) {
    if (r.page[i].index == index) return i;
  }
  return r.pages;
}

bool FileChannel::is_whole(Request& r, const Page& page) { return r.part[page.first].bytes == kPageSize; }

// Decides where the content of each page is transferred: in the caller's buffer, if the kernel can use it as it is.
void FileChannel::place_contents(Request& r) {
  uint32_t bounced = 0;
  bool may_use = !r.writes || !file_.space->cipher();
  for (uint32_t i = 0; i < r.pages; i++) {
    Page& page = r.page[i];
    const Part& part = r.part[page.first];
    bool direct = may_use && page.first == page.last && is_whole(r, page) && part.near &&
                  is_aligned(reinterpret_cast<uint64_t>(part.near), kAlignment);
    page.bounces = !direct;
    if (direct) page.content = part.near;
    else bounced++;
  }
  // A page at least, since smaller memory is not aligned.
  r.bounce.make_room(bounced * kPageSize);
  std::byte* at = r.bounce.data();
  for (uint32_t i = 0; i < r.pages; i++) {
    if (!r.page[i].bounces) continue;
    r.page[i].content = at;
    at += kPageSize;
  }
}

// ---- Submission ----

int FileChannel::submit_read(std::span<const ByteRange> ranges, Token* token) {
  uint64_t bytes;
  if (int e = check(ranges, kMaxRequestBytes, &bytes); e < 0) return e;
  Request* r = free_request(requests_);
  if (!r) return -EAGAIN;
  begin(*r, max_parts(ranges.size(), bytes), false);
  for (const ByteRange& s : ranges) add_segment(*r, s.far, s.bytes, static_cast<std::byte*>(s.near));
  place_contents(*r);
  for (uint32_t i = 0; i < r->pages; i++) {
    Page& page = r->page[i];
    page.in_file = page.word != 0;
    if (!page.in_file) memset(page.content, 0, kPageSize);
  }
  transfer(*r, false);
  return submitted(*r, token);
}

int FileChannel::submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) {
  uint64_t bytes;
  Request* r = free_request(requests_);  // evictors try until there is one
  if (!r) return error_ ? error_ : -EAGAIN;
  if (int e = check(ranges, kMaxRequestBytes, &bytes); e < 0) return e;
  begin(*r, max_parts(ranges.size(), bytes), true);
  if (pipe >= 0) r->staging.make_room(align_up(bytes, kPageSize));
  std::byte* at = pipe >= 0 ? r->staging.data() : nullptr;
  for (const ByteRange& s : ranges) {
    add_segment(*r, s.far, s.bytes, at ? at : static_cast<std::byte*>(s.near));
    if (at) at += s.bytes;
  }
  if (int e = take_slots(*r); e < 0) return e;
  if (pipe >= 0) {
    iovec all = {r->staging.data(), bytes};
    if (int e = read_pipe(pipe, &all, 1, bytes); e < 0) {
      release_slots(*r);
      return e;
    }
  }
  start_write(*r);
  return submitted(*r, token);
}

// Whole pages are discarded at once. What is left of the others is written again.
int FileChannel::submit_discard(std::span<const ByteRange> ranges, Token* token) {
  uint64_t bytes;
  if (int e = check(ranges, kNoByteLimit, &bytes); e < 0) return e;
  Request* r = free_request(requests_);
  if (!r) return -EAGAIN;
  begin(*r, 2 * ranges.size(), true);
  auto add_edge = [&](uint64_t from, uint64_t to) {
    if (from < to && file_.region->word(from / kPageSize) != 0) add_segment(*r, from, to - from, nullptr);
  };
  for (const ByteRange& s : ranges) {
    uint64_t end = s.far + s.bytes, first = align_up(s.far, kPageSize), last = align_down(end, kPageSize);
    add_edge(s.far, std::min(first, end));
    if (last >= first) add_edge(last, end);
  }
  if (int e = take_slots(*r); e < 0) return e;
  for (const ByteRange& s : ranges) {
    file_.space->clear(*file_.region, align_up(s.far, kPageSize) / kPageSize, (s.far + s.bytes) / kPageSize);
  }
  for (uint32_t i = 0; i < r->pages; i++) r->page[i].word = file_.region->word(r->page[i].index);
  start_write(*r);
  return submitted(*r, token);
}

int FileChannel::submitted(Request& r, Token* token) {
  r.token = *token = (++sequence_ * kMaxInFlight) | index_of(r);
  if (r.runs_left == 0) finish_phase(r);
  if (!gathers_ || waiting_runs_ >= kGathered) submit_runs();
  return 0;
}

// ---- Writes ----

// -EAGAIN: requests of this channel will release slots. Other processes may do so as well.
int FileChannel::take_slots(Request& r) {
  constexpr int kTries = 1000;
  constexpr uint64_t kPauseNs = 1'000'000;
  if (r.pages == 0) return 0;
  r.slot.make_room(r.pages);
  std::span<SlotNumber> slots(r.slot.data(), r.pages);
  for (int tries = 0; !file_.space->take_slots(*file_.region, slots); tries++) {
    if (has_writes()) return -EAGAIN;
    if (tries == kTries) {
      fail(Status::error(ENOSPC,
                         "the far file {} is full: forked processes need room of their own for what they change; give "
                         "it a larger size",
                         file_.name));
      return error_;
    }
    os::nanosleep_ns(kPauseNs);
  }
  std::sort(slots.begin(), slots.end());
  for (uint32_t i = 0; i < r.pages; i++) r.page[i].slot = slots[i];
  return 0;
}

void FileChannel::release_slots(Request& r) {
  if (!file_.region->is_intact()) return;  // they were released with it
  for (uint32_t i = 0; i < r.pages; i++) file_.space->release(r.page[i].slot);
}

bool FileChannel::has_writes() const {
  return std::any_of(requests_, requests_ + kMaxInFlight, [](const Request& r) { return r.token != 0 && r.writes; });
}

// Reads what remains of pages that are written in part.
void FileChannel::start_write(Request& r) {
  place_contents(r);
  for (uint32_t i = 0; i < r.pages; i++) {
    Page& page = r.page[i];
    bool keeps_part = !is_whole(r, page);
    page.in_file = keeps_part && page.word != 0;
    if (keeps_part && !page.in_file) memset(page.content, 0, kPageSize);
  }
  transfer(r, false);
}

void FileChannel::start_publishing(Request& r) {
  r.publishes = true;
  for (uint32_t i = 0; i < r.pages; i++) prepare_write(r, r.page[i]);
  transfer(r, true);
}

// A page of zeros needs no slot.
void FileChannel::prepare_write(Request& r, Page& page) {
  for (uint32_t p = page.bounces ? page.first : kNone; p != kNone; p = r.part[p].next) {
    const Part& part = r.part[p];
    if (part.near) memcpy(page.content + part.offset, part.near, part.bytes);
    else memset(page.content + part.offset, 0, part.bytes);
  }
  page.in_file = !is_zero_page(page.content);
  page.word = page.in_file ? FarRegion::make_word(page.slot, checksum(page.content)) : 0;
  const XtsCipher* cipher = file_.space->cipher();
  if (cipher && page.in_file) cipher->encrypt(page.slot, page.content, page.content, kPageSize);
}

void FileChannel::finish_writes(Request& r) {
  if (!file_.region->is_intact()) return fail_released();
  for (uint32_t i = 0; i < r.pages; i++) {
    const Page& page = r.page[i];
    if (page.in_file) {
      file_.space->publish(*file_.region, page.index, page.word);
    } else {
      file_.space->clear(*file_.region, page.index);
      file_.space->release(page.slot);
    }
  }
  r.result = 0;
}

// ---- Reads ----

void FileChannel::finish_reads(Request& r) {
  for (uint32_t i = 0; i < r.pages; i++) {
    Page& page = r.page[i];
    if (page.in_file && !has_arrived(page) && !read_again(page)) return;
  }
  if (!file_.region->is_intact()) return fail_released();
  if (r.writes) return start_publishing(r);
  for (uint32_t i = 0; i < r.pages; i++) {
    const Page& page = r.page[i];
    for (uint32_t p = page.bounces ? page.first : kNone; p != kNone; p = r.part[p].next) {
      memcpy(r.part[p].near, page.content + r.part[p].offset, r.part[p].bytes);
    }
  }
  r.result = 0;
}

// The content is that of the page's word, which is still the same: else another page may be in its slot by now.
bool FileChannel::has_arrived(Page& page) {
  if (const XtsCipher* cipher = file_.space->cipher())
    cipher->decrypt(FarRegion::slot_of(page.word), page.content, kPageSize);
  return checksum(page.content) == FarRegion::crc_of(page.word) && file_.region->word(page.index) == page.word;
}

// Parts of a page are read while another thread may fetch, change and evict the page. False: the channel has failed.
bool FileChannel::read_again(Page& page) {
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; tries++) {
    uint64_t word = file_.region->word(page.index);
    if (word == page.word) break;
    page.word = word;
    if (word == 0) {
      memset(page.content, 0, kPageSize);
      return true;
    }
    long n = os::call(SYS_pread64, file_.space->file_fd(), page.content, kPageSize,
                      FarRegion::slot_of(word) * uint64_t{kPageSize});
    if (n != static_cast<long>(kPageSize)) {
      fail_transfer(false, n);
      return false;
    }
    if (has_arrived(page)) return true;
  }
  fail(Status::error(EBADMSG,
                     "page {} of far memory is damaged in the far file {}: its checksum differs; check the device and "
                     "its cables, and whether another program writes to it",
                     page.index, file_.name));
  return false;
}

// ---- Transfers ----

// Requests to the kernel for the pages that are in the file. Pages are in the order of the caller's list, which for
// neighbours is mostly that of their slots.
void FileChannel::transfer(Request& r, bool write) {
  r.runs = r.next_run = 0;
  auto slot_of = [&](uint32_t i) { return write ? r.page[i].slot : FarRegion::slot_of(r.page[i].word); };
  for (uint32_t i = 0; i < r.pages;) {
    if (!r.page[i].in_file) {
      i++;
      continue;
    }
    uint32_t end = i + 1;
    while (end < r.pages && end - i < kRunPages && r.page[end].in_file && slot_of(end) == slot_of(end - 1) + 1) end++;
    add_run(r, i, end, slot_of(i), write);
    i = end;
  }
  r.runs_left = r.runs;
  waiting_runs_ += r.runs;
}

void FileChannel::add_run(Request& r, uint32_t first, uint32_t end, SlotNumber slot, bool write) {
  iovec *vector = &r.vector[first], *last = vector;
  *last = {r.page[first].content, kPageSize};
  for (uint32_t i = first + 1; i < end; i++) {
    if (r.page[i].content == static_cast<std::byte*>(last->iov_base) + last->iov_len) last->iov_len += kPageSize;
    else *++last = {r.page[i].content, kPageSize};
  }
  Run& run = r.run[r.runs];
  run.bytes = (end - first) * static_cast<uint32_t>(kPageSize);
  run.request = {};
  run.request.aio_data = uint64_t{index_of(r)} << 32 | r.runs++;
  run.request.aio_lio_opcode = write ? IOCB_CMD_PWRITEV : IOCB_CMD_PREADV;
  run.request.aio_fildes = static_cast<uint32_t>(file_.space->file_fd());
  run.request.aio_buf = reinterpret_cast<uint64_t>(vector);
  run.request.aio_nbytes = static_cast<uint64_t>(last - vector) + 1;
  run.request.aio_offset = static_cast<int64_t>(slot) * static_cast<int64_t>(kPageSize);
}

// One system call for all requests that wait.
void FileChannel::submit_runs() {
  while (waiting_runs_ > 0 && !error_) {
    iocb* list[FileQueue::kDepth];
    size_t count = 0;
    for (Request& r : requests_) {
      if (r.token == 0) continue;
      for (uint32_t i = r.next_run; i < r.runs && count < FileQueue::kDepth; i++) list[count++] = &r.run[i].request;
    }
    size_t started = queue_->submit({list, count});
    if (started == 0) return;
    waiting_runs_ -= static_cast<unsigned>(started);
    for (size_t i = 0; i < started; i++) requests_[list[i]->aio_data >> 32].next_run++;
  }
}

// Whether nothing waits to be submitted but the last transfer of this request.
bool FileChannel::is_alone(const Request& r) const {
  return waiting_runs_ == 1 && r.runs_left == 1 && r.next_run + 1 == r.runs;
}

// Makes the transfer and waits for it: one system call, and no completion that has to wake this thread.
void FileChannel::execute(Request& r) {
  const iocb& request = r.run[r.next_run++].request;
  waiting_runs_--;
  handle({request.aio_data, 0, FileQueue::execute(request), 0});
}

void FileChannel::sleep(Request& r, uint64_t timeout_ns) {
  if (is_alone(r)) return execute(r);
  if (waiting_runs_ > 0) submit_runs();
  queue_->sleep(timeout_ns);
  pump();
}

void FileChannel::pump() {
  io_event events[FileQueue::kDepth];
  size_t count = queue_->take(events);
  for (size_t i = 0; i < count; i++) handle(events[i]);
  if (waiting_runs_ > 0) submit_runs();
}

void FileChannel::handle(const io_event& event) {
  Request& r = requests_[event.data >> 32];
  const Run& run = r.run[static_cast<uint32_t>(event.data)];
  if (error_) return;
  if (event.res != run.bytes) return fail_transfer(r.publishes, event.res);
  if (--r.runs_left == 0) finish_phase(r);
}

void FileChannel::finish_phase(Request& r) {
  if (!r.publishes) finish_reads(r);
  if (error_) return;
  if (r.publishes && r.runs_left == 0) finish_writes(r);
}

// ---- Results ----

int FileChannel::poll(Token token) {
  Request* r = find_request(requests_, token);
  if (!r) return -EINVAL;
  if (r->result == kInFlight) pump();
  if (r->result == kInFlight) return 0;
  r->token = 0;
  return r->result < 0 ? r->result : 1;
}

int FileChannel::wait(Token token, uint64_t timeout_ns) {
  Request* r = find_request(requests_, token);
  if (!r) return -EINVAL;
  bool completed = wait_until(
      reply_times_, timeout_ns, [r] { return r->result != kInFlight; }, [this] { pump(); },
      [&](uint64_t ns) { sleep(*r, ns); });
  if (!completed) return -ETIMEDOUT;
  r->token = 0;
  return r->result;
}

void FileChannel::fail_transfer(bool write, int64_t result) {
  int error = result < 0 ? static_cast<int>(-result) : EIO;
  if (write && (result >= 0 || error == ENOSPC)) {
    return fail(Status::error(ENOSPC,
                              "the far file {} is full: its file system has no room; free some, or let the file be "
                              "allocated beforehand with alloc=full",
                              file_.name));
  }
  fail(Status::error(error, "the far file {} cannot be {} (error {}); check the device and the kernel's log",
                     file_.name, write ? "written" : "read", error));
}

void FileChannel::fail_released() {
  fail(Status::error(EBADF, "the program closed descriptors of Farside, among them the table of the far file {}",
                     file_.name));
}

// After this nothing is read to a buffer of the caller.
void FileChannel::fail(const Status& reason) {
  if (error_) return;
  error_ = -ECONNRESET;
  file_.failures->report(reason);
  io_event ignored[FileQueue::kDepth];
  while (queue_->in_flight() > 0) {
    if (queue_->take(ignored) == 0) queue_->sleep(1'000'000'000);
  }
  for (Request& r : requests_) {
    if (r.token == 0 || r.result != kInFlight) continue;
    if (r.writes) release_slots(r);
    r.result = error_;
  }
}

}  // namespace farside::transport
