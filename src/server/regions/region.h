// The far memory of one client, and the copy-on-write tree that its forks create.
//
// A root region owns all of its pages. An overlay (the region of a forked child) owns the pages that may differ from
// its base at the time of the snapshot; all other pages are read from the base. Therefore, before a page of a base
// changes, its old content is saved into every direct overlay that does not own it. Overlays of overlays then find it
// there.
//
// Locks. All regions of one tree share a family lock:
//   shared     reads; writes of a root without overlays (clients never have two of them in flight for one page; a
//              client that does can damage only its own data)
//   exclusive  all other writes; discards, since a read through the mapping of a page that is just being discarded
//              would store a page of zeros; every change of the shape of the tree
// It is held for one piece of a request at a time (piece.h). The pool's mutex is taken after it.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "server/memory/memory_file.h"
#include "server/memory/page_bitmap.h"
#include "server/regions/account.h"
#include "server/regions/disposal.h"
#include "server/regions/fair_lock.h"
#include "server/regions/fence.h"
#include "server/regions/piece.h"
#include "server/regions/share.h"
#include "server/regions/tenant.h"
#include "wire/codec.h"

namespace farside::server {

class Region {
 public:
  // What a program and its forked children share.
  struct Family {
    Family(uint64_t quota, std::shared_ptr<Tenant> t, Account* server, Disposal* d, const Overflow* o)
        : tenant(std::move(t)), account(quota, tenant ? &tenant->account : server), disposal(d), overflow(o) {}
    // Where RAM is full, pages are moved to a file.
    bool expects_ram() const { return overflow && overflow->is_moving_pages(); }
    FairLock lock;
    Visits visits;                         // of pieces, while the lock is held
    const std::shared_ptr<Tenant> tenant;  // may be null
    Account account;
    Disposal* const disposal;
    const Overflow* const overflow;  // may be null
  };
  struct Name {
    uint64_t id;
    uint8_t secret[wire::kSecretBytes];
  };
  // The process that made the region, for logs and metrics.
  struct Client {
    std::string peer, source;  // guarded by the pool's mutex
    uint64_t since_ns = now_ns();
    std::atomic<uint64_t> requests{0}, received{0}, sent{0};
  };

  // Memory that a region needs even if it is empty: its file, descriptor and this object.
  static constexpr uint64_t kOverheadBytes = 16 * 1024;

  // Regions from a root to an overlay. A search for the owner of a page takes one piece, with room to do something.
  static constexpr unsigned kMaxChain = 3072;

  Region(Name name, uint64_t bytes, MemoryFile memory, std::shared_ptr<Family> family);  // an empty root
  // A snapshot of *base. The family lock is held.
  Region(Name name, MemoryFile memory, std::unique_ptr<PageBitmap> own, Region* base);
  ~Region();

  Client client;

  const Name& name() const { return name_; }
  uint64_t bytes() const { return bytes_; }
  bool is_overlay() const { return base_ != nullptr; }
  int memory_fd() const { return memory_.fd(); }
  const std::shared_ptr<Tenant>& tenant() const { return family_->tenant; }
  // Of its family; tests lower the limit and read the count.
  Visits& visits() const { return family_->visits; }

  // Access to the content, thread-safe: the next piece of a request. The ranges are inside the region. 0, kMore, or
  // -errno: -ENOSPC if the reservation would be exceeded, -ENOMEM if the server is full, -EIO if this snapshot was
  // given up because the server had no memory to save its pages.
  int read(const wire::RangeList& ranges, std::byte* to, Progress* progress);
  int write(const wire::RangeList& ranges, const std::byte* from, Progress* progress);
  int discard(const wire::RangeList& ranges, Progress* progress);
  // Calls use() with the memory of the ranges, while nothing discards it, and returns its result. Access by guarded().
  // False: the memory cannot be read in place.
  template <typename Use>
  bool use_in_place(const wire::RangeList& ranges, Use use) const;

  // The client maps the memory, too. Before anything is written.
  void note_shared() { memory_.note_shared(); }

  // Notes that functions will access these ranges (wire::CallRange) through a mapping of the file. -ENOTSUP: the region
  // is a snapshot or has some, so that accesses must not bypass it.
  int admit_call(wire::Bytes ranges, uint32_t count);
  // After calls that were not admitted one by one.
  void note_stored_by_calls();

  // Who compresses its cold pages; nullptr: they are not compressed. The family lock is held as long as it is used.
  PackedFile* packed() const { return memory_.packed(); }

  // One-sided access to a slab; errors as those of wire::ShareRequest.
  int share(const ucx::Settings& settings, uint64_t offset, wire::ShareReply* out);
  [[nodiscard]] RegionShare::Remains revoke_share() { return share_.revoke(); }

  uint64_t stored_bytes() const { return memory_.stored_bytes(); }
  MemoryFile::Stored stored() const { return memory_.stored(); }
  uint64_t reserved_bytes() const { return reserved_; }
  uint64_t overhead_bytes() const { return overhead_; }
  // Makes the charge exact. A root with connections is charged for its reservation, or for what it stores if that is
  // more; all others for what they store. The pool's mutex is held.
  void settle();

 private:
  friend class MemoryPool;

  bool is_plain() const { return !base_ && overlays_.empty(); }

  // Accounts.
  template <typename Work>
  static void for_each_page_run(const wire::RangeList& ranges, Work work);
  int admit(const wire::RangeList& ranges);
  int admit_call_range(uint64_t offset, uint64_t bytes);
  bool exceeds_reservation(uint64_t missing);
  bool charge_pages(uint64_t bytes);
  void charge_what_is_stored();
  void charge_overhead();
  void provide_memory(Progress* progress);
  int wait_for_memory(int result, Progress* progress);
  bool may_scatter(const wire::RangeList& ranges) const;
  bool has_room_to_save(uint64_t page, bool zero);

  // Roots without overlays.
  int write_plain(const wire::RangeList& ranges, const std::byte* from);
  int patch_page(const wire::RangeList& ranges, uint32_t* next, uint32_t end, const std::byte** from);
  void unshare_empty_slabs(uint64_t offset, uint64_t bytes);

  // The tree (region_tree.cc). The family lock is held; results of type int are 0, kMore or -errno.
  struct Owner {
    const Region* region;
    uint64_t pages;  // that it owns in a row
  };
  struct Content {  // of one page
    std::byte bytes[wire::kPageBytes];
    int error = 0;  // why there is none
    bool is_loaded = false, is_zero = false;
  };
  struct NextData {
    static constexpr uint64_t kUnknown = ~uint64_t{0};
    uint64_t own = kUnknown, of_base = kUnknown;
  };
  bool owns(uint64_t page) const { return !base_ || own_->test(page); }
  PageBitmap::Run owned_run(uint64_t page) const { return own_ ? own_->run(page) : PageBitmap::Run{true, bytes_}; }
  unsigned chain_length() const;
  int find_owner(uint64_t page, WorkPiece* piece, Owner* owner) const;
  int load(uint64_t page, WorkPiece* piece, Content* content) const;
  // How many bytes were done, fewer than all when the piece is over, or -errno.
  int64_t read_some(const wire::ByteRange& range, std::byte* to, WorkPiece* piece) const;
  int64_t write_some(const wire::ByteRange& range, const std::byte* from, Progress* progress, WorkPiece* piece);
  int64_t discard_some(const wire::ByteRange& range, Progress* progress, WorkPiece* piece);
  int write_part(const wire::ByteRange& part, const std::byte* from, Progress* progress, WorkPiece* piece);
  bool find_data(uint64_t at, bool owned, const Progress& progress, WorkPiece* piece, NextData* next) const;
  uint64_t next_data_of_chain(uint64_t offset, WorkPiece* piece) const;
  int discard_run(const wire::ByteRange& range, bool owned);
  int discard_part(const wire::ByteRange& part, Progress* progress, WorkPiece* piece);
  int punch(const wire::ByteRange& range);
  int keep_page(uint64_t page, const Content& content);
  int save_for_overlays(uint64_t page, Content* content, Progress* progress, WorkPiece* piece);
  bool save(uint64_t page, const Content& content);
  void give_up();
  void free_given_up(std::atomic<uint64_t>* charged);
  void detach_from_base();
  int merge_into_base(WorkPiece* piece);
  int move_to_base(uint64_t page);
  void punch_moved(uint64_t first);
  void replace_base();

  const Name name_;
  const uint64_t bytes_;
  const std::shared_ptr<Family> family_;
  Account* const account_;  // of the family

  // Guarded by the family lock.
  MemoryFile memory_;
  std::unique_ptr<PageBitmap> own_;     // overlays only
  uint64_t merged_up_to_ = 0;           // pages before this one were moved to the base, unless they were written again
  std::atomic<bool> given_up_ = false;  // also read without it

  // Changed while both the pool's mutex and the family lock are held, so either allows reading.
  Region* base_ = nullptr;
  std::map<uint64_t, Region*> overlays_;  // by identifier
  bool is_merging_ = false;               // no connection can reach it any more; its only overlay takes its place

  // Guarded by the pool's mutex.
  unsigned connections_ = 0;
  uint64_t last_sequence_ = 0;                                 // of the last reservation granted
  MemoryFile::Stored last_stored_;                             // when it was settled last
  std::unordered_map<uint64_t, std::weak_ptr<Fence>> fences_;  // by channel

  RegionShare share_;  // of memory_; of roots only

  std::atomic<uint64_t> reserved_{0};         // written while the pool's mutex is held
  std::atomic<uint64_t> stored_by_calls_{0};  // in all, when it was last noted
  std::atomic<uint64_t> stored_bound_{0};     // upper bound of what is stored; settle() makes it exact
  std::atomic<uint64_t> charged_{0};          // the share of this region in the account
  std::atomic<uint64_t> overhead_{0};         // likewise, of the overhead
};

template <typename Use>
bool Region::use_in_place(const wire::RangeList& ranges, Use use) const {
  std::shared_lock hold(family_->lock);
  if (base_ || given_up_) return false;
  iovec pieces[wire::kMaxRanges];
  for (uint32_t i = 0; i < ranges.size(); i++) {
    wire::ByteRange e = ranges[i];
    const std::byte* memory = memory_.view(e.offset, e.bytes);
    if (!memory) return false;
    pieces[i] = {const_cast<std::byte*>(memory), e.bytes};
  }
  return use(std::span<iovec>(pieces, ranges.size()));
}

}  // namespace farside::server
