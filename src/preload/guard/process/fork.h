// What a fork needs before and after its system call (made in guard/traps.cc): far memory is quiesced before, and
// usable in both processes after. The child sees the memory as it was at the fork.
#pragma once
#include "preload/heap/limits.h"

namespace farside::preload {

// The constructor takes the locks of all layers, objects, mappings, pager, in this order. Then exactly one of the two
// functions is called in each process and releases them. In between, nothing may access far memory. The caller has
// blocked signals.
class ForkScope {
 public:
  ForkScope();
  void in_parent(bool forked);
  void in_child();

 private:
  LimitsLifted lifted_;
};

}  // namespace farside::preload
