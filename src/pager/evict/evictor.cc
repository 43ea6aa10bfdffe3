#include "pager/evict/evictor.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/inherited_fds.h"
#include "base/inject.h"
#include "base/log.h"
#include "base/os.h"
#include "pager/shared/sample_log.h"

namespace farside::pager {
namespace {

constexpr size_t kPipeBytes = kBatchPages * kPageSize;

// Merges neighbouring pages of a sorted list into runs. Returns the number of runs.
size_t merge_runs(const PageTable& table, std::span<const PageIndex> pages, PageRun* runs) {
  size_t count = 0;
  for (PageIndex page : pages) count = append_page(runs, count, table.address_of(page));
  return count;
}

}  // namespace

Status Evictor::open() {
  for (Batch& batch : batches_) {
    if (batch.pipe_read >= 0) continue;
    int fds[2];
    if (int error = os::pipe(fds, O_CLOEXEC | O_NONBLOCK)) {
      return Status::error(-error, "cannot open a pipe for eviction (error {}); raise 'ulimit -n'", -error);
    }
    batch.pipe_read = os::move_fd_high(fds[0]);
    batch.pipe_write = os::move_fd_high(fds[1]);
    batch.room = static_cast<size_t>(os::fcntl(batch.pipe_write, F_GETPIPE_SZ, 0)) / kPageSize;
    FARSIDE_CHECK(batch.room > 0);
  }
  may_enlarge_ = true;
  Status status;
  if (!channel_) channel_ = store_->open_channel(&status);
  if (channel_) twins_.set_remote(!channel_->mapping().immediate);
  huge_.set_channel(channel_);
  return status;
}

Evictor::~Evictor() {
  close_pipes();
  for (Batch& batch : batches_) {
    if (batch.log) near_free(batch.log, kLogBytes);
  }
  if (held_) near_free(held_, kCompared * kPageSize);
  if (channel_) store_->close_channel(channel_);
}

void Evictor::close_pipes() {
  for (Batch& batch : batches_) {
    if (batch.pipe_read >= 0) close_inherited(batch.pipe_read);
    if (batch.pipe_write >= 0) close_inherited(batch.pipe_write);
    batch.pipe_read = batch.pipe_write = -1;
  }
}

void Evictor::reset_in_child() {
  close_pipes();
  channel_ = nullptr;
  huge_.set_channel(nullptr);
  counters_.clear();
}

bool Evictor::owns_fd(int fd) const {
  for (const Batch& batch : batches_) {
    if (fd == batch.pipe_read || fd == batch.pipe_write) return true;
  }
  return false;
}

bool Evictor::step(bool frames_wanted) {
  bool progress = poll();
  bool huge_wanted = index_ == 0 && pool_.wants_frame();
  if (huge_wanted && huge_.provide_frame()) return true;
  if (huge_wanted && !pool_.wants_pages()) {
    if (!busy()) pool_.give_up();
    huge_wanted = false;
  }
  if (!frames_wanted && !huge_wanted) return progress;
  if (frames_wanted && preferred_.is_empty() &&
      huge_.free_frames(std::clamp<size_t>(frames_.missing(), kMinBatchPages, kBatchPages)))
    return true;
  for (Batch& batch : batches_) {
    if (batch.unwritten > 0) continue;
    if (start(batch)) return true;
    if (leaving() > 0) return progress;
    if (huge_.free_any()) return true;
    if (huge_wanted && !busy()) pool_.give_up();
    return progress;
  }
  return progress;  // all batches are in flight: the transport is the bottleneck
}

bool Evictor::poll() {
  bool progress = poll_writes();
  return huge_.poll() || progress;
}

// The kernel completes direct writes of files by a thread of its own, which gets this core late, or not for seconds on
// a loaded machine, while this thread makes no system call.
void Evictor::wait_for_write() {
  for (unsigned spins = 0; spins < kIdleSpins; spins++) {
    if (poll()) return;
    cpu_relax();
  }
  os::nanosleep_ns(kWriteSleepNs);
}

void Evictor::relieve() {
  constexpr uint64_t kFramesOfAThread = 16;
  uint64_t frames = kFramesOfAThread * frames_.waiting();
  frames_.exceed(frames);
  counters_.add(Counter::kFramesExceeded, frames);
  frames_.released().wake_all();
}

void Evictor::drain() {
  while (busy()) wait_for_write();
}

// Most processes of a tree never evict, and the memory of all pipes of a user is limited (fs.pipe-user-pages-soft), so
// a pipe is enlarged when it is first used. Where the limit is reached, batches are smaller: at least two pages.
void Evictor::enlarge_pipe(Batch& batch) {
  if (batch.room >= kBatchPages || !may_enlarge_) return;
  int bytes = os::fcntl(batch.pipe_write, F_SETPIPE_SZ, kPipeBytes);
  if (bytes > 0) batch.room = static_cast<size_t>(bytes) / kPageSize;
  else may_enlarge_ = false;
}

bool Evictor::start(Batch& batch) {
  enlarge_pipe(batch);
  uint64_t start = ticks();
  if (select(batch) == 0) return false;
  counters_.add(Counter::kSelectTicks, ticks() - start);
  remove(batch, nullptr);
  return true;
}

void Evictor::make_far(std::span<const PageIndex> pages, SampleLog& log) {
  while (!pages.empty()) {
    auto batch = std::ranges::find(batches_, size_t{0}, &Batch::unwritten);
    if (batch == std::end(batches_)) {
      wait_for_write();
      continue;
    }
    enlarge_pipe(*batch);
    break_up_huge(pages);
    std::span<const PageIndex> part = pages.first(std::min(pages.size(), batch->room));
    if (take(*batch, part) > 0) remove(*batch, &log);
    pages = pages.subspan(part.size());
  }
}

// Phases 2 to 4.
void Evictor::remove(Batch& batch, SampleLog* log) {
  inject::pause("evict:selected");
  uint64_t t1 = ticks();
  hold(batch);
  inject::pause("evict:held");
  uint64_t t2 = ticks();
  unmap(batch);
  inject::pause("evict:unmapped");
  if (log) add_samples(batch, *log);
  uint64_t t3 = ticks();
  release_clean(batch);
  if (batch.dirty_count > 0) write(batch);
  uint64_t t4 = ticks();
  counters_.add(Counter::kBatches);
  counters_.add(Counter::kHoldTicks, t2 - t1);
  counters_.add(Counter::kUnmapTicks, t3 - t2);
  counters_.add(Counter::kWriteTicks, t4 - t3);
  count_cpu_time();
}

// Before any of the pages can be fetched.
void Evictor::add_samples(const Batch& batch, SampleLog& log) {
  for (size_t i = 0; i < batch.count; i++) {
    bool dirty = table_[batch.pages[i]].load().has(PageWord::kDirty);
    log.add_page(dirty ? SampleKind::kFarDirty : SampleKind::kFarClean, batch.pages[i]);
  }
}

// Phase 2. The pipe has room for the pages of a batch, so it is never full here. A short count means that the kernel
// could not reference a page; that page stays near.
void Evictor::hold(Batch& batch) {
  if (batch.dirty_count == 0) return;
  PageRun runs[kBatchPages];
  size_t run_count = merge_runs(table_, {batch.dirty, batch.dirty_count}, runs);
  size_t held = 0;
  size_t first = 0;
  while (first < run_count) {
    long r = os::vmsplice(batch.pipe_write, reinterpret_cast<iovec*>(runs + first), run_count - first, 0);
    if (r == -EINTR || r == -EAGAIN) continue;
    if (r == -EPERM || r == -ENOSYS)
      die("vmsplice is refused (error {}), so no page can be evicted; permit it in the seccomp profile", -r);
    if (r <= 0) break;
    FARSIDE_CHECK(is_aligned(static_cast<uint64_t>(r), kPageSize));
    held += static_cast<size_t>(r) / kPageSize;
    auto left = static_cast<size_t>(r);
    while (first < run_count && left >= runs[first].bytes) left -= runs[first++].bytes;
    if (left > 0) {
      runs[first].address += left;
      runs[first].bytes -= left;
    }
  }
  if (held < batch.dirty_count) skip_unheld(batch, held);
}

void Evictor::skip_unheld(Batch& batch, size_t held) {
  FARSIDE_CHECK(held < batch.dirty_count);
  log(LogLevel::kDebug, "{} pages could not be held for eviction and stay near", batch.dirty_count - held);
  for (size_t i = held; i < batch.dirty_count; i++) {
    PageIndex page = batch.dirty[i];
    batch.count = static_cast<size_t>(std::remove(batch.pages, batch.pages + batch.count, page) - batch.pages);
    put_back(page);
  }
  batch.dirty_count = held;
  batch.whole_count = std::min(batch.whole_count, held);
}

// Phase 3.
void Evictor::unmap(Batch& batch) {
  PageRun runs[kBatchPages];
  size_t run_count = merge_runs(table_, {batch.pages, batch.count}, runs);
  if (run_count == 0) return;
  if (int error = space_.unmap({runs, run_count})) die("internal error: cannot unmap pages (error {})", -error);
}

void Evictor::release_clean(Batch& batch) {
  counters_.add(Counter::kEvictions, batch.count);
  frames_.count_evicted(batch.count);
  uint16_t epoch = frames_.epoch();
  size_t clean = 0, emptied = 0;
  for (size_t i = 0; i < batch.count; i++) {
    if (table_[batch.pages[i]].load().has(PageWord::kDirty)) continue;
    PageWord old = table_[batch.pages[i]].update([&](PageWord w) {
      if (w.has(PageWord::kFreed)) return w.without_content().with_state(PageState::kUnmapped);
      PageState to = w.has(PageWord::kStored) ? PageState::kFar : PageState::kUntouched;
      return w.with_state(to).without(PageWord::kHot | PageWord::kCow | PageWord::kHuge).with_epoch(epoch);
    });
    FARSIDE_CHECK(old.is(PageState::kEvicting) && !old.has(PageWord::kDirty));
    if (!old.has(PageWord::kStored)) emptied++;
    clean++;
  }
  if (emptied > 0) budget_.depopulate(emptied);
  if (clean > 0) frames_.give(clean);
}

// Phase 4.
void Evictor::write(Batch& batch) {
  FARSIDE_CHECK(in_flight_ < kBatches);
  in_flight_++;
  batch.write_count = 0;
  batch.unwritten = 1;
  if (batch.whole_count > 0) write_whole(batch);
  if (batch.whole_count < batch.dirty_count) write_lines(batch);
  counters_.add(Counter::kDirtyEvictions, batch.dirty_count);
  if (--batch.unwritten == 0) finish(batch);
}

void Evictor::write_whole(Batch& batch) {
  uint64_t start = ticks();
  write_pages(batch, 0, batch.whole_count);
  if (twins_.enabled()) twins_.record_evictor_time(Twins::kWhole, batch.whole_count, ticks() - start);
}

// Whole pages, spliced from the pipe.
void Evictor::write_pages(Batch& batch, size_t first, size_t end) {
  for (; first < end; first += kWritePages) {
    PageRun runs[kWritePages];
    size_t run_count = merge_runs(table_, {batch.dirty + first, std::min(kWritePages, end - first)}, runs);
    transport::ByteRange ranges[kWritePages];
    for (size_t i = 0; i < run_count; i++) {
      uint64_t far = PageTable::far_of(table_.index_of(reinterpret_cast<uint64_t>(runs[i].address)));
      ranges[i] = {far, static_cast<uint32_t>(runs[i].bytes), nullptr};
    }
    submit(batch, {ranges, run_count}, std::min(kWritePages, end - first), batch.pipe_read);
  }
}

// Sends runs of changed lines, gathered from many pages. A page with many changed lines is copied to the log whole.
// When the log is full, the remaining pages of the batch are sent whole from the pipe.
void Evictor::write_lines(Batch& batch) {
  if (!batch.log) batch.log = static_cast<std::byte*>(near_alloc(kLogBytes));
  if (!held_) held_ = static_cast<std::byte*>(near_alloc(kCompared * kPageSize));
  uint64_t start = ticks();
  transport::ByteRange ranges[transport::kMaxRanges];
  size_t used = 0, count = 0, at = batch.whole_count, sent = at;
  auto add = [&](uint64_t far, const std::byte* from, size_t bytes) {
    memcpy(batch.log + used, from, bytes);
    ranges[count++] = {far, static_cast<uint32_t>(bytes), batch.log + used};
    used += bytes;
  };
  while (at < batch.dirty_count && used + kCompared * kPageSize <= kLogBytes) {
    size_t pages = std::min(kCompared, batch.dirty_count - at);
    read_held(batch, pages);
    for (size_t i = 0; i < pages; i++) {
      PageIndex page = batch.dirty[at + i];
      const std::byte* content = held_ + i * kPageSize;
      PageIndex next = batch.dirty[std::min(at + i + 1, batch.dirty_count - 1)];
      uint64_t lines = twins_.changes(page, content, next), far = PageTable::far_of(page);
      bool whole = static_cast<unsigned>(std::popcount(lines)) > kPageLines / 2 || runs_in(lines) > kMaxRuns;
      if (whole) lines = ~uint64_t{0};
      else counters_.add(Counter::kLinePages);
      if (count + kMaxRuns > std::size(ranges)) {
        submit(batch, {ranges, std::exchange(count, 0)}, at + i - sent, -1);
        sent = at + i;
      }
      for_each_run(lines, [&](unsigned first, unsigned n) {
        add(far + first * kCacheLine, content + first * kCacheLine, n * kCacheLine);
      });
    }
    at += pages;
    poll_writes();  // releases frames early, and times the acknowledgements
  }
  uint64_t took = ticks() - start;
  counters_.add(Counter::kCompareTicks, took);
  twins_.record_evictor_time(Twins::kByLines, at - batch.whole_count, took);
  if (count > 0) submit(batch, {ranges, count}, at - sent, -1);
  for (size_t i = at; i < batch.dirty_count; i++) twins_.drop(batch.dirty[i]);
  write_pages(batch, at, batch.dirty_count);
}

// Reads the content of the next pages from the pipe.
void Evictor::read_held(Batch& batch, size_t pages) {
  for (size_t have = 0; have < pages * kPageSize;) {
    ssize_t n = os::read(batch.pipe_read, held_ + have, pages * kPageSize - have);
    if (n == -EINTR) continue;
    if (n <= 0) die("internal error: {} of {} bytes are held for eviction (error {})", have, pages * kPageSize, -n);
    have += static_cast<size_t>(n);
  }
}

void Evictor::submit(Batch& batch, std::span<const transport::ByteRange> ranges, size_t pages, int pipe) {
  uint64_t bytes = 0;
  for (const transport::ByteRange& s : ranges) bytes += s.bytes;
  FARSIDE_CHECK(batch.write_count < Batch::kMaxWrites);
  Batch::Write& write = batch.writes[batch.write_count];
  int error;
  while ((error = channel_->submit_write(ranges, pipe, &write.token)) == -EAGAIN) wait_for_write();
  if (error) die_of_lost_memory(store_, error);
  write.pages = pages;
  write.method = pipe < 0 ? Twins::kByLines : Twins::kWhole;
  write.sent = ticks();
  batch.write_count++;
  batch.unwritten++;
  counters_.add(Counter::kBytesWritten, bytes);
}

bool Evictor::poll_writes() {
  bool progress = false;
  for (Batch& batch : batches_) {
    if (batch.unwritten > 0) progress |= poll_writes_of(batch);
  }
  return progress;
}

bool Evictor::poll_writes_of(Batch& batch) {
  size_t before = batch.unwritten;
  for (size_t i = 0; i < batch.write_count; i++) {
    Batch::Write& write = batch.writes[i];
    if (write.token == 0) continue;
    int r = channel_->poll(write.token);
    if (r == 0) break;  // they complete in order
    if (r < 0) die_of_lost_memory(store_, r);
    write.token = 0;
    FARSIDE_CHECK(batch.unwritten > 0);
    if (twins_.enabled()) record_acknowledged(write);
    if (--batch.unwritten == 0) finish(batch);
  }
  return batch.unwritten < before;
}

void Evictor::record_acknowledged(const Batch::Write& write) {
  uint64_t now = ticks();
  twins_.record_link_time(write.method, write.pages, now - std::max(write.sent, last_acknowledged_));
  last_acknowledged_ = now;
}

// Phase 5.
void Evictor::finish(Batch& batch) {
  uint64_t start = ticks();
  uint16_t epoch = frames_.epoch();
  for (size_t i = 0; i < batch.dirty_count; i++) {
    PageWord old = table_[batch.dirty[i]].update([&](PageWord w) {
      constexpr uint64_t kGone = PageWord::kDirty | PageWord::kHot | PageWord::kCow | PageWord::kHuge;
      return w.with_state(PageState::kFar).without(kGone).with(PageWord::kStored).with_epoch(epoch);
    });
    FARSIDE_CHECK(old.is(PageState::kEvicting) && old.has(PageWord::kDirty));
  }
  FARSIDE_CHECK(in_flight_ > 0 && batch.unwritten == 0);
  in_flight_--;
  frames_.give(batch.dirty_count);
  counters_.add(Counter::kReleaseTicks, ticks() - start);
}

}  // namespace farside::pager
