#include "pager/pager.h"

#include <algorithm>

#include "base/log.h"

namespace farside::pager {

Result<std::unique_ptr<Pager>> Pager::create(const Options& options, remote::RemoteStore* store, Delivery delivery) {
  auto space = FarSpace::reserve(options.space, delivery);
  if (!space.ok()) return space.status();
  std::unique_ptr<Pager> pager(new Pager(options, store, std::move(*space)));
  // The handler thread may act on messages that are outdated, while the program runs.
  if (delivery == Delivery::kMessages) pager->paging().assume_other_writers();
  return pager;
}

Pager::Pager(const Options& options, remote::RemoteStore* store, std::unique_ptr<FarSpace> space)
    : store_(store),
      space_(std::move(space)),
      table_(space_->base(), space_->bytes()),
      policy_(options.policy, table_),
      twins_(options.writeback, table_.pages(), frames_),
      threads_(store, frames_),
      budget_(frames_, options.local, sizeof(PageWord) + twins_.entry_bytes()),
      sizing_(budget_, frames_, threads_, options.slowdown),
      sampler_(samples_, table_, budget_, sizing_),
      huge_table_(table_.pages()),
      huge_queue_(huge_table_, frames_),
      density_(huge_table_, frames_),
      pool_(*space_, frames_),
      account_(frames_, huge_queue_, pool_),
      evictors_(near(), huge_memory(), sizing_, sampler_, threads_, store, options.evictors),
      huge_(near(), huge_memory(), store, evictors_, options.huge),
      fetches_(near(), inside(), store, evictors_, huge_),
      faults_(near(), inside(), fetches_, huge_, options.prefetch),
      hints_(near(), inside(), evictors_, fetches_, faults_, huge_),
      ranges_(near(), inside(), store, evictors_, faults_),
      addresses_(*space_, table_, policy_, store, ranges_, huge_, evictors_),
      paging_(table_, inside(), evictors_, huge_, fetches_, faults_, hints_, ranges_),
      calls_(table_, ranges_),
      forks_(near(), pool_, inside(), store, evictors_, fetches_, addresses_, calls_) {
  sampler_.set_used_pages([](const void* a) { return static_cast<const AddressSpace*>(a)->used_pages(); }, &addresses_);
  evictors_.set_background_work([](void* fetches) { return static_cast<FetchPath*>(fetches)->map_ahead(); }, &fetches_);
}

Pager::~Pager() {
  evictors_.stop();
  threads_.close_channels();
}

void Pager::start_threads() {
  huge_.open();
  evictors_.start();
}

void Pager::start_threads_late() {
  huge_.open();
  evictors_.start_late();
}

Stats Pager::stats() {
  Stats s;
  uint64_t spare = 0;
  threads_.for_each([&](ThreadSlot& t) {
    for (size_t i = 0; i < kCounters; i++) s.counters[i] += t.counters.get(static_cast<Counter>(i));
    s.busiest_thread_fetches = std::max(s.busiest_thread_fetches, t.counters.get(Counter::kMajorFaults));
    s.fault_times.add(t.fault_times);
    s.frame_waits.add(t.frame_waits);
    spare += t.spare_frames.count();
  });
  evictors_.add_counters(s);
  s.near_pages = saturating_sub(frames_.held(), spare);
  s.near_peak_pages = frames_.peak();
  s.slowdown = budget_.is_automatic() ? sizing_.slowdown() : 0;
  Sizing::Means means =
      budget_.is_automatic() ? sizing_.means() : Sizing::Means{frames_.peak(), budget_.populated_peak()};
  s.near_mean_pages = std::min(means.near, frames_.peak());
  s.populated_mean_pages = means.populated;
  s.populated_pages = budget_.populated();
  s.populated_peak_pages = budget_.populated_peak();
  s.limit_pages = frames_.target();
  s.metadata_bytes = budget_.metadata_bytes();
  return s;
}

void Pager::check_valid() {
  evictors_.pause();  // a page evicted between the walk and the count would look like a lost frame
  FARSIDE_CHECK(addresses_.is_valid());
  uint64_t pages = addresses_.used_pages(), near = 0;
  for (uint64_t i = 0; i < pages; i++) {
    PageWord w = table_[static_cast<PageIndex>(i)].load();
    if (!w.is_valid()) die("internal error: page {} has the impossible word {:#x}", i, w.bits());
    near += w.is(PageState::kNear) || w.is(PageState::kFetching);
  }
  if (near > frames_.used())
    die("internal error: {} pages are near but only {} frames are counted", near, frames_.used());
  evictors_.resume();
}

}  // namespace farside::pager
