// Changes of whole ranges of pages: commit, drop their content, seal against reading, pin for system calls. They change
// the words page by page, so they exclude faults and evictions of the same pages only. Except for pin and unpin,
// callers have signals blocked: a handler that interrupted an operation and touched a page that the operation owns
// would wait for its own thread.
#pragma once
#include <optional>

#include "pager/fault/fault_path.h"

namespace farside::pager {

class RangeOps {
 public:
  RangeOps(const PageMemory& pages, const ThreadsAndGate& inside, remote::RemoteStore* store, EvictorGroup& evictors,
           FaultPath& faults)
      : space_(pages.space),
        table_(pages.table),
        policy_(pages.policy),
        frames_(pages.frames),
        budget_(pages.budget),
        twins_(pages.twins),
        threads_(inside.threads),
        gate_(inside.gate),
        store_(store),
        evictors_(evictors),
        faults_(faults) {}

  // The pages are part of an allocation from now on, and read as zero: kUnmapped -> kUntouched. A freed page that is
  // near still is filled with zeros.
  void commit(PageIndex first, uint64_t count);
  // Any state -> kUnmapped or kUntouched. The content is dropped, in near memory and on the server.
  void drop(PageIndex first, uint64_t count, PageState to);
  // As a drop to kUnmapped, but pages that are near and writable stay so, with their frames, until an evictor needs
  // these or commit() the pages. Evictors take the last few thousand of them first, and write
  // none.
  void free(PageIndex first, uint64_t count);
  // Evicts the range, and keeps it from being fetched until unseal(). Used for protections without read access.
  void seal(PageIndex first, uint64_t count);
  void unseal(PageIndex first, uint64_t count);
  bool all_mapped(PageIndex first, uint64_t count);
  // Pages of no allocation: whether their addresses are taken by something else than far memory.
  void set_foreign(PageIndex first, uint64_t count, bool foreign);

  // For functions that a memory server executes (docs/internals/offload.md). WriteBack: the server gets the content of
  // ranges. take: the caller owns the pages, without near copies, until give_back, and other threads that access them
  // wait. What take() returns is the number of pages that it took: all, or up to one that the program may not access,
  // or that holds far objects. Ranges of one caller are in the order of their addresses, since it waits for pages that
  // others own while it owns some.
  class WriteBack;
  uint64_t take(PageIndex first, uint64_t count);
  void give_back(PageIndex first, uint64_t count);

  uint64_t pin(PageIndex first, uint64_t count, bool write);
  void unpin(PageIndex first, uint64_t count);

 private:
  // To what a range of pages is dropped.
  struct Drop {
    PageState to;
    bool keeps_frames = false;
  };
  void drop_pieces(PageIndex first, uint64_t count, Drop drop);
  void drop_piece(ThreadSlot& thread, PageIndex first, unsigned count, Drop drop);
  void own(ThreadSlot& thread, PageIndex page, bool keeps_frame = false);
  void keep(ThreadSlot& thread, PageIndex page);
  void commit_one(ThreadSlot& thread, PageIndex page);
  bool take_back(ThreadSlot& thread, PageIndex page, PageWord word);
  void unmap_owned(PageIndex first, unsigned count);
  void discard_far(ThreadSlot& thread, PageIndex first, unsigned count);
  void push_out(ThreadSlot& thread, PageIndex page);
  // Dirty pages that the caller owns, and their words before.
  struct DirtyPages {
    static constexpr size_t kMax = transport::kMaxRequestBytes / kPageSize;
    PageIndex pages[kMax];
    PageWord before[kMax];
    size_t count = 0;
  };
  class WindowScan;
  enum class Sync { kClean, kOwned, kFree };
  Sync own_dirty(ThreadSlot& thread, PageIndex page, DirtyPages& pages);
  void store_and_release(ThreadSlot& thread, DirtyPages& pages);
  void store(ThreadSlot& thread, DirtyPages& pages);
  bool own_unpinned(ThreadSlot& thread, PageIndex page);
  bool pin_one(ThreadSlot& thread, PageIndex page, bool write);

  FarSpace& space_;
  PageTable& table_;
  Policy& policy_;
  Frames& frames_;
  Budget& budget_;
  Twins& twins_;
  ThreadRegistry& threads_;
  Gate& gate_;
  remote::RemoteStore* store_;
  EvictorGroup& evictors_;
  FaultPath& faults_;
};

// Brings ranges to the server as they are when they are added; pages that are near stay near. Dirty pages of several
// ranges share a request. They are owned, and threads that write to them wait, until finish().
class RangeOps::WriteBack {
 public:
  explicit WriteBack(RangeOps& ranges) : ranges_(ranges), thread_(ranges.threads_.current()) {}
  ~WriteBack() { finish(); }
  WriteBack(const WriteBack&) = delete;
  WriteBack& operator=(const WriteBack&) = delete;

  // Skips settled windows. False: a page belongs to no allocation.
  bool add(PageIndex first, uint64_t count);
  void finish();

 private:
  RangeOps& ranges_;
  ThreadSlot& thread_;
  std::optional<InGate> inside_;  // from the first page that is looked at
  DirtyPages dirty_;
};

}  // namespace farside::pager
