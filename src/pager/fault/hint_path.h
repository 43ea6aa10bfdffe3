// Hints: a program announces its next accesses (include/farside/farside.h; Eden 3). The pages are fetched in a few
// requests before the accesses fault. A wrong hint costs time and bandwidth, nothing else. Called from ordinary code
// with signals blocked, except for is_satisfied().
#pragma once
#include "pager/fault/fault_path.h"
#include "pager/fault/huge_path.h"

namespace farside::pager {

struct Hint {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool write = false;
  unsigned priority = 0;           // 0 .. 3; see PageWord::kPriorityShift
  unsigned ahead = 0, behind = 0;  // pages
  bool wait = true;                // until the bytes are near; never for pages ahead or behind
  bool wait_for_frames = false;    // as a fault does; else what finds no frame is left out
};

class HintPath {
 public:
  static constexpr unsigned kMaxPages = 1024;  // of one hint

  HintPath(const PageMemory& pages, const ThreadsAndGate& inside, EvictorGroup& evictors, FetchPath& fetches,
           FaultPath& faults, HugePath& huge)
      : table_(pages.table),
        frames_(pages.frames),
        threads_(inside.threads),
        gate_(inside.gate),
        evictors_(evictors),
        fetches_(fetches),
        faults_(faults),
        huge_(huge) {}

  // Fetches the absent pages of the hint, and waits for those that hold its bytes. Returns the number of pages fetched.
  unsigned hint(const Hint& hint, bool may_suspend);

  // Reads what a range lacks, up to half of near memory. write: for writes, so that pages without content get zeros.
  // wait: until it is near.
  void fetch_range(PageIndex first, uint64_t count, bool write, bool wait);

  // Whether all pages are near as the hint requests; records their use. Takes no lock and makes no system call.
  bool is_satisfied(const Hint& hint);

 private:
  // Pages of a hint that are claimed but not fetched yet.
  struct Claims {
    Claim far, untouched;
    unsigned fetched = 0;  // pages of claims that were flushed
  };

  void claim_all(const Caller& caller, Claims& claims, PageIndex first, PageIndex last, const Hint& hint);
  uint64_t most_at_once() const;  // pages
  bool fetch_huge(const Caller& caller, Claims& claims, PageIndex page, PageIndex last, const Hint& hint);
  bool claim_page(const Caller& caller, Claims& claims, PageIndex page, const Hint& hint, bool asked);
  void flush(const Caller& caller, Claims& claims);
  bool wait_for(const Caller& caller, PageIndex first, PageIndex last);
  void set_priority(PageIndex page, unsigned priority);
  void record_use(PageIndex page);

  PageTable& table_;
  Frames& frames_;
  ThreadRegistry& threads_;
  Gate& gate_;
  EvictorGroup& evictors_;
  FetchPath& fetches_;
  FaultPath& faults_;
  HugePath& huge_;
};

}  // namespace farside::pager
