// One-sided access of a client to its region, by UCX: slabs that hold data are shared by a process that has nothing but
// this region in its memory (ucx/exporter.h). The end of that process revokes all access. At most as many slabs are
// shared as are reserved, so what the client can make the kernel store is bounded by what it is charged for.
// Thread-safe. Nothing waits but for the end of a process that was killed.
#pragma once
#include <atomic>
#include <memory>
#include <unordered_map>

#include "base/sync.h"
#include "ucx/helper.h"
#include "wire/protocol.h"

namespace farside::server {

class RegionShare {
 public:
  // The process, which is ending; it has ended when this is destroyed.
  using Remains = std::unique_ptr<ucx::Helper>;

  // Access to a slab of the file. 0, or an error of wire::ShareRequest as -errno. max_slabs: that may be shared.
  int share(const ucx::Settings& settings, int memory_fd, wire::ByteRange slab, uint64_t max_slabs,
            wire::ShareReply* out);
  // The slab holds no data any more.
  void unshare(uint64_t offset);
  // Ends all access: nothing reaches the memory after the result was destroyed.
  [[nodiscard]] Remains revoke();
  bool is_active() const { return active_.load(std::memory_order_relaxed); }
  uint64_t slabs() const;

 private:
  static constexpr uint64_t kBackoffNs = 5'000'000'000;  // after the process has failed
  static constexpr uint64_t kPauseNs = 100'000'000;      // between processes, however often a client revokes

  int start(const ucx::Settings& settings, int memory_fd) REQUIRES(mutex_);
  int request(wire::ByteRange slab) REQUIRES(mutex_);
  int take_replies() REQUIRES(mutex_);
  int fail() REQUIRES(mutex_);
  Remains end() REQUIRES(mutex_);

  mutable Mutex mutex_;  // taken last
  std::atomic<bool> active_{false};
  std::unique_ptr<ucx::Helper> helper_ GUARDED_BY(mutex_);
  uint64_t epoch_ GUARDED_BY(mutex_) = 0;
  uint64_t not_before_ns_ GUARDED_BY(mutex_) = 0;
  int pause_reason_ GUARDED_BY(mutex_) = 0;                                                    // -errno, before then
  std::unordered_map<uint64_t, std::unique_ptr<wire::ShareReply>> shared_ GUARDED_BY(mutex_);  // by offset
  // Offsets without a reply yet; false: it was unshared meanwhile.
  std::unordered_map<uint64_t, bool> requested_ GUARDED_BY(mutex_);
};

}  // namespace farside::server
