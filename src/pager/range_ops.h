// Changes to whole ranges of pages: making them usable, giving them up, dropping their content, sealing them against
// reading, pinning them for system calls. Each works page by page on the states, so it serializes with faults and
// evictions on the same pages and with nothing else. Callers (the pager's facade) have signals blocked: a handler that
// interrupted an operation and touched a page that it owns would wait for itself.
#pragma once
#include "pager/fault_path.h"

namespace farside::pager {

class RangeOps {
 public:
  RangeOps(const Context& context, FaultPath& faults) : c_(context), faults_(faults) {}

  // kUnmapped -> kUntouched.
  void commit(PageIndex first, uint64_t count);
  // Anything -> kUnmapped or kUntouched; contents are dropped near and far.
  void drop(PageIndex first, uint64_t count, PageState to);
  // Pushes the range out and keeps it out until unsealed. Nobody may be inside the gate for these pages for long.
  void seal(PageIndex first, uint64_t count);
  void unseal(PageIndex first, uint64_t count);
  bool all_mapped(PageIndex first, uint64_t count);

  uint64_t pin(PageIndex first, uint64_t count, bool write);
  void unpin(PageIndex first, uint64_t count);

 private:
  void drop_piece(ThreadSlot& thread, PageIndex first, unsigned count, PageState to);
  void own(ThreadSlot& thread, PageIndex page);
  void unmap_owned(PageIndex first, unsigned count);
  void forget_far(ThreadSlot& thread, PageIndex first, unsigned count);
  void push_out(ThreadSlot& thread, PageIndex page);
  bool pin_one(ThreadSlot& thread, PageIndex page, bool write);

  Context c_;
  FaultPath& faults_;
};

}  // namespace farside::pager
