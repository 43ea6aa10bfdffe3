#include "pager/fork_coordinator.h"

#include "base/log.h"

namespace farside::pager {

// Order: the gate first, since threads inside it may need evictors; then reads that no thread waits for; then the
// evictors; then the locks of ordinary code, so that the child inherits complete structures.
void ForkCoordinator::prepare() {
  ThreadSlot& self = threads_.current();
  calls_.lock_for_fork();
  gate_.shut(threads_, self);
  threads_.for_each([&](ThreadSlot& t) { fetches_.drain(self, t); });
  evictors_.pause();
  addresses_.lock_for_fork();
  // One mapping for all that the child protects: kernels before 6.4 protect no range of two.
  space_.include_in_core(space_.base() + addresses_.used_pages() * kPageSize);
  threads_.before_fork();
  Result<remote::ForkTicket> ticket = store_->prepare_fork();
  ticket_ = ticket.ok() ? *ticket : remote::ForkTicket();
  if (!ticket.ok())
    log(LogLevel::kWarning, "{}; a forked child that touches far memory will end", ticket.status().text());
  near_before_fork();
}

void ForkCoordinator::unlock() {
  near_after_fork();
  threads_.after_fork();
  addresses_.unlock_after_fork();
  calls_.unlock_after_fork();
}

void ForkCoordinator::in_parent(bool forked) {
  if (forked) protect_shared_frames();
  unlock();
  store_->forked_in_parent(ticket_);
  evictors_.resume();
  gate_.open();
}

// After a fork the frames of near pages are shared with the child, copy-on-write. Their next write must fault, so that
// the kernel's copy is never made while an evictor holds the old frame: all near pages are write-protected and get the
// cow bit. Dirty pages that are pinned for system calls must stay writable for the kernel: they are copied at once.
void ForkCoordinator::protect_shared_frames() {
  addresses_.for_each_far_stretch([&](PageIndex first, uint64_t count) {
    PageIndex run = first, end = first + static_cast<PageIndex>(count);
    for (PageIndex page = first; page < end; page++) {
      PageWord w = table_[page].load();
      if (!w.is(PageState::kNear)) continue;
      // The kernel does not write a pinned page that the program may not write.
      bool stays_writable = w.pins() > 0 && w.writable() && space_.make_own(table_.address_of(page)) == 0;
      if (!stays_writable) {
        table_[page].set(PageWord::kCow);
        continue;
      }
      protect(run, page - run);
      run = page + 1;
    }
    protect(run, end - run);
  });
}

void ForkCoordinator::in_child() {
  unlock();
  gate_.reset_in_child();
  frames_.reset_in_child();
  pool_.reset_in_child();
  evictors_.reset_in_child();
  transport::Waiting::reset_in_child();
  Status adopted = store_->adopt_in_child(ticket_);
  if (!adopted.ok() && ticket_.valid()) log(LogLevel::kWarning, "{}", adopted.text());
  snapshot_failed_ = !adopted.ok();
  threads_.reset_in_child();
  int error = addresses_.watch_in_child();
  if (error)
    die("a forked child cannot register its far memory with userfaultfd (error {}); it ends, since it would read zeros",
        -error);
  clear_pins();
  protect_shared_frames();
  gate_.open();
}

void ForkCoordinator::clear_pins() {
  uint64_t pages = addresses_.used_pages();
  for (uint64_t i = 0; i < pages; i++) {
    PageTable::Entry word = table_[static_cast<PageIndex>(i)];
    if (word.load().pins() != 0) word.clear(PageWord::kPinMask);
  }
}

void ForkCoordinator::protect(PageIndex first, uint64_t count) {
  if (count == 0) return;
  int error = space_.write_protect(table_.address_of(first), count * kPageSize, true);
  if (error) die("internal error: cannot write-protect after fork (error {})", -error);
}

}  // namespace farside::pager
