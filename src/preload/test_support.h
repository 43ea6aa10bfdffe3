// Support for tests of the guard without preloading it: one pager for the process, with functions that check which
// pages are near and that evict pages.
#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstring>
#include <string>
#include <vector>

#include "pager/test_support.h"
#include "preload/guard/calls/guarded_call.h"
#include "preload/guard/calls/syscall_table.h"
#include "preload/guard/thread/pins.h"
#include "preload/heap/mappings.h"

namespace farside::preload {

inline constexpr uint64_t kTestSpace = 512 * kMiB;

inline uint64_t stack_pointer() { return reinterpret_cast<uint64_t>(__builtin_frame_address(0)); }

// One per process: mappings can be enabled only once.
class GuardedPager {
 public:
  static GuardedPager& get() {
    static GuardedPager* one = new GuardedPager;
    return *one;
  }
  pager::Pager* operator->() { return &**fixture_; }

  bool is_near(const void* address) { return is(address, pager::PageState::kNear); }
  bool is(const void* address, pager::PageState state) {
    return (*this)->table().word(reinterpret_cast<uint64_t>(address)).is(state);
  }
  // Evicts all pages of the range. Fails if one of them is pinned.
  void evict(const void* address, size_t bytes) {
    auto* begin = reinterpret_cast<const char*>(align_down(reinterpret_cast<uint64_t>(address), kPageSize));
    auto* end = static_cast<const char*>(address) + bytes;
    for (int round = 0; round < 1000; round++) {
      bool near = false;
      for (auto* at = begin; at < end; at += kPageSize) {
        // An evictor that owns the page may put it back, and no hint fetches it meanwhile.
        if (!is_near(at) && !is(at, pager::PageState::kEvicting)) continue;
        near = true;
        (*this)->paging().evict_first(reinterpret_cast<const std::byte*>(at));
      }
      if (!near) return;
      touch_filler(kFillerPages / 16);
    }
    FAIL() << "pages stay near";
  }
  // Writes filler pages to take frames. There are more of them than the budget allows near.
  void touch_filler(size_t pages = kFillerPages) {
    for (; pages > 0; pages--) filler_[next_filler_++ % kFillerPages * kPageSize] = 1;
  }

 private:
  GuardedPager() {
    Options options;
    options.local = {8 * kMiB, 0};
    options.space = kTestSpace;
    options.prefetch = false;  // so that only what is pinned is brought near
    fixture_ =
        new pager::PagerFixture(options, new pager::LocalStore(kTestSpace, kTestSpace, true), pager::Delivery::kSignal);
    set_guard_pager(&**fixture_);
    enable_far_mappings(&**fixture_);
    filler_ = reinterpret_cast<volatile char*>(fixture_->allocate(kFillerPages * kPageSize));
  }
  static constexpr size_t kFillerPages = 12 * kMiB / kPageSize;
  pager::PagerFixture* fixture_;
  volatile char* filler_;
  size_t next_filler_ = 0;
};

}  // namespace farside::preload
