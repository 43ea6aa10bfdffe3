#include "stress_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

namespace farside::stress {
namespace {

constexpr size_t kBlocks = 6;
constexpr size_t kMaxRun = 24 * kKiB;
constexpr size_t kMaxPinned = 2 * kPageSize;  // 8 threads pin at most 24 pages, far fewer than the smallest budget
constexpr unsigned kChildSeconds = 120;
constexpr int kChildOperations = 300;

// Not under the thread sanitizer. A call reads pages at the server while evictors may write back those that another
// thread has fetched ahead and that count as changed. They write what is there already; but the reader changes no page
// word, so the sanitizer sees no order between both, and reports a race. (If the reader changes the words after it,
// there are no reports.) Release builds and the address sanitizer call functions and compare the contents.
#ifdef __SANITIZE_THREAD__
constexpr bool kCallsFunctions = false;
#else
constexpr bool kCallsFunctions = true;
#endif
constexpr uint64_t kTransferNs = 60'000'000'000;

}  // namespace

StressWorker::StressWorker(World& world, unsigned index)
    : world_(world),
      index_(index),
      random_(world.settings.seed * 1000003 + index),
      blocks_(kBlocks),
      stripe_shadow_(world.shared_pages.pages * SharedPages::kStripe) {
  open_pipe();
  for (Block& b : blocks_) allocate(b);
}

StressWorker::~StressWorker() {
  if (server_) world_.pager.store()->close_channel(server_);
}

void StressWorker::open_pipe() {
  if (pipe2(pipe_, O_CLOEXEC) != 0) die("cannot open a pipe");
}

void StressWorker::run_for_a_while() {
  for (uint64_t n = random_.between(500, 4000); n > 0 && !world_.stop.load(); n--) {
    begin_operation();
    operate();
    busy.store(false);
    operations.fetch_add(1, std::memory_order_relaxed);
    reap(false);
  }
  begin_operation();
  // Some threads end without detach_thread, as raw threads do.
  if (!random_.one_in(8)) world_.pager.paging().detach_thread();
  busy.store(false);
}

void StressWorker::begin_operation() {
  busy.store(true);
  while (world_.quiet.load()) {
    busy.store(false);
    os::nanosleep_ns(50000);
    busy.store(true);
  }
}

void StressWorker::operate() {
  uint64_t dice = random_.below(1000);
  if (dice < 250) return write_word();
  if (dice < 410) return read_word();
  if (dice < 450) return hint();
  if (dice < 550) return write_run();
  if (dice < 650) return read_run();
  if (dice < 680) return copy_run();
  if (dice < 860) return access_shared_pages();
  if (dice < 880) return sweep();
  if (dice < 910) return call_kernel();
  if (dice < 930) return kCallsFunctions ? call_function() : read_run();
  if (dice < 950) return discard();
  if (dice < 965) return recommit();
  if (dice < 970) return reallocate();
  if (dice < 980) return world_.settings.protect ? protect_none() : write_run();
  if (dice < 990) return world_.settings.protect ? protect_read() : read_run();
  if (dice < 994) return advise();
  if (dice == 999 && world_.settings.forks && !world_.in_child) return fork();
}

StressWorker::Range StressWorker::any_range(size_t limit) {
  Block& b = blocks_[random_.below(blocks_.size())];
  size_t bytes = random_.between(1, std::min(limit, b.bytes()));
  return {&b, random_.below(b.bytes() - bytes + 1), bytes};
}

StressWorker::Range StressWorker::any_pages(size_t limit) {
  Block& b = blocks_[random_.below(blocks_.size())];
  size_t pages = random_.between(1, std::min(limit, b.pages()));
  return {&b, random_.below(b.pages() - pages + 1) * kPageSize, pages * kPageSize};
}

void StressWorker::fill(std::byte* to, size_t bytes) {
  uint64_t value = random_.next();
  for (size_t i = 0; i < bytes; i++) to[i] = static_cast<std::byte>(value >> (i % 8 * 8) ^ i / 8);
}

void StressWorker::write_word() {
  Block& b = blocks_[random_.below(blocks_.size())];
  write_word({&b, 0, b.bytes()});
}

void StressWorker::write_word(const Range& r) {
  size_t offset = random_.below(r.bytes / 8) * 8;
  uint64_t value = random_.next();
  if (random_.one_in(4)) memcpy(&value, r.shadow() + offset, 8);  // a write that changes nothing
  *reinterpret_cast<volatile uint64_t*>(r.far() + offset) = value;
  memcpy(r.shadow() + offset, &value, 8);
}

void StressWorker::read_word() {
  Block& b = blocks_[random_.below(blocks_.size())];
  size_t offset = random_.below(b.bytes() / 8) * 8;
  world_.compare(b.far + offset, b.shadow.data() + offset, 8, "a word");
}

void StressWorker::write_run() {
  Range r = any_range(kMaxRun);
  fill(r.shadow(), r.bytes);
  memcpy(r.far(), r.shadow(), r.bytes);
}

void StressWorker::read_run() {
  Range r = any_range(kMaxRun);
  world_.compare(r.far(), r.shadow(), r.bytes, "a run");
}

// From far memory to far memory: both pages of an access may be absent.
void StressWorker::copy_run() {
  Range from = any_range(kMaxRun), to = any_range(kMaxRun);
  size_t bytes = std::min(from.bytes, to.bytes);
  memmove(to.far(), from.far(), bytes);
  memmove(to.shadow(), from.shadow(), bytes);
}

// Correct hints, and hints about other blocks or addresses without memory. None may change what is read.
void StressWorker::hint() {
  Range r = any_range(kMaxRun);
  pager::Hint h = {.address = reinterpret_cast<uint64_t>(r.far()), .bytes = r.bytes, .write = random_.one_in(2)};
  if (random_.one_in(8)) {
    h.address =
        reinterpret_cast<uint64_t>(world_.pager.space().base()) + random_.below(2 * world_.pager.space().bytes());
    h.bytes = random_.one_in(2) ? random_.below(kMaxRun) : random_.next();
  }
  h.priority = static_cast<unsigned>(random_.below(4));
  if (random_.one_in(3)) h.ahead = static_cast<unsigned>(random_.below(80));
  if (random_.one_in(3)) h.behind = static_cast<unsigned>(random_.below(80));
  world_.pager.paging().hint(h);
  if (random_.one_in(2)) world_.compare(r.far(), r.shadow(), r.bytes, "hinted pages");
}

// Accesses a whole block in order or backwards with a stride, so that the prefetcher is involved.
void StressWorker::sweep() {
  Block& b = blocks_[random_.below(blocks_.size())];
  bool write = random_.one_in(2), backwards = random_.one_in(3);
  size_t stride = random_.between(1, 3);
  for (size_t i = 0; i < b.pages(); i += stride) {
    size_t offset = (backwards ? b.pages() - 1 - i : i) * kPageSize + random_.below(kPageSize / 8) * 8;
    if (write) {
      uint64_t value = random_.next();
      *reinterpret_cast<volatile uint64_t*>(b.far + offset) = value;
      memcpy(b.shadow.data() + offset, &value, 8);
    }
    world_.compare(b.far + offset, b.shadow.data() + offset, 8, "a sweep");
  }
}

void StressWorker::advise() {
  constexpr int kAdvice[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_SEQUENTIAL, MADV_NORMAL};
  Range r = any_pages(4096);
  world_.pager.paging().advise(r.far(), r.bytes, kAdvice[random_.below(std::size(kAdvice))]);
}

void StressWorker::access_shared_pages() {
  size_t page = random_.below(random_.one_in(2) ? world_.shared_pages.pages : SharedPages::kHot);
  size_t bytes = random_.between(1, SharedPages::kStripe), offset = random_.below(SharedPages::kStripe - bytes + 1);
  std::byte* far = world_.shared_pages.at(page, index_) + offset;
  std::byte* shadow = stripe_shadow_.data() + page * SharedPages::kStripe + offset;
  world_.compare(far, shadow, bytes, "the shared pages");
  if (random_.one_in(2)) return;
  fill(shadow, bytes);
  memcpy(far, shadow, bytes);
}

void StressWorker::discard() {
  Range r = any_pages(64);
  world_.pager.addresses().discard(r.far(), r.bytes);
  memset(r.shadow(), 0, r.bytes);
  if (random_.one_in(2)) world_.compare(r.far(), r.shadow(), r.bytes, "discarded pages");
}

void StressWorker::recommit() {
  Range r = any_pages(64);
  random_.one_in(3) ? world_.pager.addresses().decommit(r.far(), r.bytes)
                    : world_.pager.addresses().decommit_lazily(r.far(), r.bytes);
  if (world_.pager.addresses().is_committed(r.far(), kPageSize))
    world_.fail("a page is committed after decommit", r.far(), r.shadow());
  if (random_.one_in(4)) os::nanosleep_ns(random_.below(200'000));  // evictors take some of the frames
  Status s = world_.pager.addresses().commit(r.far(), r.bytes);
  if (!s.ok()) die("{}", s.text());
  memset(r.shadow(), 0, r.bytes);
  if (random_.one_in(2)) world_.compare(r.far(), r.shadow(), r.bytes, "pages that were committed again");
}

void StressWorker::allocate(Block& block) {
  size_t share = world_.settings.memory / world_.settings.threads / kBlocks / kPageSize;
  size_t bytes = random_.between(share / 2 + 1, share + share / 2 + 1) * kPageSize;
  block.far = world_.pager.addresses().reserve(bytes, random_.one_in(2) ? kPageSize : 2 * kMiB);
  if (!block.far) die("no addresses left");
  Status s = world_.pager.addresses().commit(block.far, bytes);
  if (!s.ok()) die("{}", s.text());
  block.shadow.assign(bytes, std::byte{0});
  auto policy = static_cast<PolicyKind>(random_.below(kPolicyKinds));
  block.is_region = random_.one_in(3) && world_.pager.addresses().add_region(block.far, bytes, policy).ok();
}

void StressWorker::free(Block& block) {
  if (block.is_region) world_.pager.addresses().remove_region(block.far);
  world_.pager.addresses().decommit(block.far, block.bytes());
  world_.pager.addresses().release(block.far, block.bytes());
}

void StressWorker::reallocate() {
  Block& b = blocks_[random_.below(blocks_.size())];
  free(b);
  allocate(b);
}

void StressWorker::protect_none() {
  Range r = any_pages(32);
  auto set = [&](int protection) {
    Status s = world_.pager.addresses().protect(r.far(), r.bytes, protection);
    if (!s.ok()) die("{}", s.text());
  };
  set(PROT_NONE);
  if (random_.one_in(4)) os::sched_yield();
  set(PROT_READ | PROT_WRITE);
  world_.compare(r.far(), r.shadow(), r.bytes, "pages that were unreadable");
}

void StressWorker::protect_read() {
  Range r = any_pages(32);
  Status s = world_.pager.addresses().protect(r.far(), r.bytes, PROT_READ);
  if (!s.ok()) die("{}", s.text());
  world_.compare(r.far(), r.shadow(), r.bytes, "read-only pages");
  for (int i = 0; i < 3; i++) read_run();  // streams cross the boundary of the protection
  s = world_.pager.addresses().protect(r.far(), r.bytes, PROT_READ | PROT_WRITE);
  if (!s.ok()) die("{}", s.text());
}

// System calls on far buffers: pinned or, if a handler thread also serves the kernel's faults, unpinned.
void StressWorker::call_kernel() {
  Range r = any_range(kMaxPinned);
  bool into_far = random_.one_in(2);
  bool pin = world_.settings.delivery == "signal" || random_.one_in(2);
  if (pin && world_.pager.paging().pin(r.far(), r.bytes, into_far) != r.bytes)
    world_.fail("pages could not be pinned", r.far(), r.shadow());
  pump(into_far ? r.shadow() : r.far(), r.bytes, into_far);
  if (into_far) {
    if (read(pipe_[0], r.far(), r.bytes) != static_cast<ssize_t>(r.bytes))
      world_.fail("read() into far memory failed", r.far(), r.shadow());
  } else {
    std::byte copy[kMaxPinned];
    if (read(pipe_[0], copy, r.bytes) != static_cast<ssize_t>(r.bytes)) world_.fail("read failed");
    if (memcmp(copy, r.shadow(), r.bytes) != 0)
      world_.fail("write() from far memory wrote other bytes", r.far(), r.shadow());
  }
  if (pin) world_.pager.paging().unpin(r.far(), r.bytes);
}

void StressWorker::pump(std::byte* buffer, size_t bytes, bool fresh) {
  if (fresh) fill(buffer, bytes);
  if (write(pipe_[1], buffer, bytes) != static_cast<ssize_t>(bytes)) world_.fail("write to a pipe failed");
}

// A call of a function on the memory server, whose part this thread plays: while the call has the range, the server's
// copy is read and changed over a channel. Far memory is not touched meanwhile.
void StressWorker::call_function() {
  if (world_.in_child) return;
  if (!server_) {
    Status status;
    server_ = world_.pager.store()->open_channel(&status);
    if (!server_) die("{}", status.text());
  }
  // Evictors copy to local stores in this process, so a read of a page that others change would be a data race.
  !world_.settings.is_local() && random_.one_in(3) ? call_on_shared_pages() : call_on_blocks();
}

void StressWorker::transfer(std::byte* far, std::byte* near, size_t bytes, bool write) {
  for (size_t at = 0; at < bytes; at += transport::kMaxRequestBytes) {
    auto part = static_cast<uint32_t>(std::min(bytes - at, transport::kMaxRequestBytes));
    transport::ByteRange range = {static_cast<uint64_t>(far + at - world_.pager.space().base()), part, near + at};
    transport::Token token = 0;
    int error = write ? server_->submit_write({&range, 1}, -1, &token) : server_->submit_read({&range, 1}, &token);
    if (!error) error = server_->wait(token, kTransferNs);
    if (error) die("a transfer of a call failed (error {})", error);
  }
}

// Often a whole block, which has whole windows of the page table: the second call finds them settled
// (PageTable::is_settled) unless something has changed them.
void StressWorker::call_on_blocks() {
  Range r = any_pages(32);
  if (random_.one_in(2)) r = {r.block, 0, r.block->bytes()};
  for (uint64_t calls = random_.between(1, 6); calls > 0; calls--) {
    call_on(r, random_.one_in(6));
    for (uint64_t writes = random_.below(3); writes > 0; writes--) write_word(r);
  }
}

void StressWorker::call_on(const Range& r, bool written) {
  pager::CallRange range = {r.far(), r.bytes, written};
  std::vector<std::byte> content(r.bytes);
  SignalsBlocked blocked;
  if (int error = world_.pager.server_calls().begin({&range, 1})) die("a call did not begin (error {})", error);
  std::vector<bool> comparable(r.bytes / kPageSize);
  for (size_t i = 0; i < comparable.size(); i++) comparable[i] = is_on_server(r.far() + i * kPageSize, written);
  transfer(r.far(), content.data(), r.bytes, false);
  for (size_t i = 0, at = 0; i < comparable.size(); i++, at += kPageSize) {
    if (!comparable[i]) continue;
    world_.compare_on_server(content.data() + at, r.far() + at, r.shadow() + at, kPageSize);
  }
  if (written) {
    fill(r.shadow(), r.bytes);
    transfer(r.far(), r.shadow(), r.bytes, true);
  }
  world_.pager.server_calls().end({&range, 1});
}

// A store without a server has anything for pages that are not stored. Those that are to be written count as stored.
// To be asked before the copy is read: another thread's hint about a page that was never touched may fill it with
// zeros, and an evictor may store these meanwhile.
bool StressWorker::is_on_server(const std::byte* far, bool written) const {
  if (!world_.settings.is_local()) return true;
  auto page = static_cast<pager::PageIndex>((far - world_.pager.space().base()) / static_cast<ptrdiff_t>(kPageSize));
  return !written && word_at(world_.pager, page).has(pager::PageWord::kStored);
}

// One to four pages, some of them written. Others change other bytes of the pages, before and after, and meanwhile if
// the page is only read.
void StressWorker::call_on_shared_pages() {
  std::vector<pager::CallRange> ranges;
  for (size_t page = random_.below(SharedPages::kHot); page < SharedPages::kHot && ranges.size() < 4;
       page += random_.between(1, 8))
    ranges.push_back({world_.shared_pages.far + page * kPageSize, kPageSize, random_.one_in(3)});
  SignalsBlocked blocked;
  if (int error = world_.pager.server_calls().begin(ranges)) die("a call did not begin (error {})", error);
  for (const pager::CallRange& range : ranges) {
    size_t page = static_cast<size_t>(range.address - world_.shared_pages.far) / kPageSize;
    std::byte* stripe = world_.shared_pages.at(page, index_);
    std::byte* shadow = stripe_shadow_.data() + page * SharedPages::kStripe;
    std::byte content[SharedPages::kStripe];
    transfer(stripe, content, sizeof content, false);
    world_.compare_on_server(content, stripe, shadow, sizeof content);
    if (!range.written) continue;
    fill(shadow, sizeof content);
    transfer(stripe, shadow, sizeof content, true);
  }
  world_.pager.server_calls().end(ranges);
}

// In half of the forks all workers are stopped, and the child verifies everything. In the others they continue, and the
// child verifies only the data of this worker, or ends at once where it could not allocate.
void StressWorker::fork() {
  if (children_.size() >= 2) return reap(true);
  bool all = random_.one_in(2) && world_.begin_quiet(*this);
  world_.pager.forks().prepare();
  pid_t pid = ::fork();
  if (pid == 0 && !all && !kForkLocksAllocator) os::exit_group(0);
  if (pid == 0) run_child(all);
  world_.pager.forks().in_parent(pid > 0);
  if (all) world_.end_quiet();
  if (pid > 0) children_.push_back(pid);
  for (int i = 0; i < 20; i++) write_run();  // the child must not see these writes
}

void StressWorker::start_threads_in_child() {
  static pager::Pager* pager;
  pager = &world_.pager;
  if (!pager->forks().has_snapshot()) return;
  bool deferred = random_.one_in(2) && pager->evictors().start_when_needed([] { pager->start_threads_late(); });
  if (!deferred) pager->start_threads();
}

void StressWorker::run_child(bool all) {
  world_.pager.forks().in_child();
  alarm(kChildSeconds);
  world_.in_child = true;
  children_.clear();
  for (int fd : pipe_) close(fd);  // the parent's pipe would mix the data of both
  open_pipe();
  if (random_.one_in(2)) start_threads_in_child();
  auto verify = [&] {
    for (StressWorker* w : world_.workers) {
      if (all || w == this) w->verify_all("after a fork");
    }
  };
  verify();
  start_threads_in_child();
  for (int i = 0; i < kChildOperations; i++) operate();
  verify();
  os::exit_group(0);
}

void StressWorker::reap(bool wait) {
  for (size_t i = 0; i < children_.size();) {
    int status = 0;
    pid_t r = waitpid(children_[i], &status, wait ? 0 : WNOHANG);
    if (r == 0) {
      i++;
      continue;
    }
    if (r > 0 && status != 0) die("child {} ended with status {:#x}; seed {}", r, status, world_.settings.seed);
    children_.erase(children_.begin() + static_cast<long>(i));
  }
}

bool StressWorker::wait_for_children() {
  reap(true);
  return children_.empty();
}

void StressWorker::verify_all(const char* when) {
  for (Block& b : blocks_) world_.compare(b.far, b.shadow.data(), b.bytes(), when);
  for (size_t page = 0; page < world_.shared_pages.pages; page++) {
    world_.compare(world_.shared_pages.at(page, index_), stripe_shadow_.data() + page * SharedPages::kStripe,
                   SharedPages::kStripe, when);
  }
}

void StressWorker::free_all() {
  for (Block& b : blocks_) free(b);
  blocks_.clear();
}

}  // namespace farside::stress
