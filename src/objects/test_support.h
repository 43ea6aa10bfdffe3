// For tests of objects: a pager on local memory, and the C functions on it.
#pragma once
#include "objects/api.h"
#include "pager/test_support.h"

namespace farside::objects {

class ObjectFixture {
 public:
  // capacity: bytes that the store can hold, of an address space of far_bytes.
  explicit ObjectFixture(size_t local_bytes, bool direct = true, uint64_t far_bytes = kGiB, uint64_t capacity = kGiB)
      : store_(new pager::LocalStore(far_bytes, capacity, direct)),
        pager_(options(local_bytes, far_bytes), store_, pager::Delivery::kSignal) {
    enable_objects(&*pager_, Paths::kHybrid);
    fibers::set_hooks({nullptr, [] { forget_thread(); }, [] { s_pager->paging().poll_reads(); }, drop_scopes});
    s_pager = &*pager_;
  }
  ~ObjectFixture() {
    forget_thread();
    disable_objects();
  }
  pager::Pager& pager() { return *pager_; }
  // Where the store has the content of far memory at this address.
  const std::byte* in_store(uint64_t address) {
    return store_->memory() + (address - reinterpret_cast<uint64_t>(pager_->space().base()));
  }

  farside_object_stats stats() {
    farside_object_stats stats;
    farside_get_object_stats(&stats);
    return stats;
  }

 private:
  Options options(size_t local_bytes, uint64_t far_bytes) const {
    Options o;
    o.local = {local_bytes + left_, 0};
    o.space = far_bytes;
    return o;
  }
  static inline pager::Pager* s_pager = nullptr;
  // What earlier tests of this process left with the near allocator. It is taken off the limit, and may be most of it.
  const size_t left_ = near_bytes();
  pager::LocalStore* store_;  // owned by pager_
  pager::PagerFixture pager_;
};

}  // namespace farside::objects
