// Changes of whole ranges of pages: commit, drop their content, seal against reading, pin for system calls. They change
// the words page by page, so they exclude faults and evictions of the same pages only. Except for pin and unpin,
// callers have signals blocked: a handler that interrupted an operation and touched a page that the operation owns
// would wait for its own thread.
#pragma once
#include "pager/fault_path.h"

namespace farside::pager {

class RangeOps {
 public:
  RangeOps(const Context& context, FaultPath& faults) : c_(context), faults_(faults) {}

  // kUnmapped -> kUntouched.
  void commit(PageIndex first, uint64_t count);
  // Any state -> kUnmapped or kUntouched. The content is dropped, in near memory and on the server.
  void drop(PageIndex first, uint64_t count, PageState to);
  // Evicts the range, and keeps it from being fetched until unseal(). Used for protections without read access.
  void seal(PageIndex first, uint64_t count);
  void unseal(PageIndex first, uint64_t count);
  bool all_mapped(PageIndex first, uint64_t count);
  // Pages of no allocation: whether their addresses are taken by something else than far memory.
  void set_foreign(PageIndex first, uint64_t count, bool foreign);

  uint64_t pin(PageIndex first, uint64_t count, bool write);
  void unpin(PageIndex first, uint64_t count);

 private:
  void drop_piece(ThreadSlot& thread, PageIndex first, unsigned count, PageState to);
  void own(ThreadSlot& thread, PageIndex page);
  void unmap_owned(PageIndex first, unsigned count);
  void discard_far(ThreadSlot& thread, PageIndex first, unsigned count);
  void push_out(ThreadSlot& thread, PageIndex page);
  bool pin_one(ThreadSlot& thread, PageIndex page, bool write);

  Context c_;
  FaultPath& faults_;
};

}  // namespace farside::pager
