// For the tests of frames and of the budget.
#pragma once
#include "pager/pages/frames.h"

namespace farside::pager {

// How many frames can be taken now, one by one. They stay taken.
inline uint64_t take_all(Frames& frames) {
  uint64_t taken = 0;
  while (frames.try_take(1)) taken++;
  return taken;
}

}  // namespace farside::pager
