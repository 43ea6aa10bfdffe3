// The log of what happens to sampled pages: abi/sample_file.h, mapped. Faults add to it, so all of it but open() is
// async-signal-safe. Without an open log, a fault pays for one load.
#pragma once
#include <atomic>

#include "abi/sample_file.h"
#include "base/clock.h"
#include "base/near.h"
#include "base/status.h"

namespace farside::pager {

class SampleLog : public NearObject {
 public:
  SampleLog() = default;
  ~SampleLog();
  SampleLog(const SampleLog&) = delete;
  SampleLog& operator=(const SampleLog&) = delete;

  // Creates a file whose name begins with `prefix`; "": a memfd. In the child of a fork it replaces the parent's. Open
  // and close it while no evictor works, or in the first one.
  Status open(const char* prefix);
  void close();
  bool is_open() const { return header_.load(std::memory_order_acquire) != nullptr; }

  void add_page(SampleKind kind, uint32_t page) {
    SampleHeader* header = header_.load(std::memory_order_acquire);
    if (header && is_sampled(page, threshold_.load(std::memory_order_relaxed))) add(*header, kind, page);
  }
  void add_state(SampleKind kind, uint64_t value) { add(*header_.load(), kind, static_cast<uint32_t>(value)); }

  uint32_t threshold() const { return threshold_.load(std::memory_order_relaxed); }
  void halve_sample() { threshold_.store(threshold() / 2); }

  bool owns_fd(int fd) const { return fd >= 0 && fd == fd_.load(std::memory_order_relaxed); }

  // Makes room for so many events more. False: the file has its largest size, or the file system is full.
  bool reserve(uint64_t events);

 private:
  static constexpr uint64_t kMaxEvents = 8 << 20;
  static constexpr uint64_t kMaxBytes = kSampleEventsAt + kMaxEvents * sizeof(SampleEvent);

  void add(SampleHeader& header, SampleKind kind, uint32_t value);
  int create(const char* prefix) const;
  int extend(uint64_t from, uint64_t bytes);

  void* place_ = nullptr;  // kMaxBytes, where the file is mapped; memory of no file where it ends, or is closed
  std::atomic<SampleHeader*> header_{nullptr};
  std::atomic<uint64_t> room_{0};  // events
  std::atomic<uint32_t> threshold_{kSampleAll};
  std::atomic<int> fd_{-1};
};

}  // namespace farside::pager
