// The handler of SIGBUS: an access of the program to far memory that is absent. Async-signal-safe.
#pragma once
#include "pager/pager.h"

namespace farside::preload {

// The time that the kernel takes to deliver a fault to the handler and to continue after it: medians of 32 faults that
// are caused for this purpose (about 200 us in all). Zeros if it cannot be measured. Not async-signal-safe.
struct SignalCost {
  double delivery_us = 0, return_us = 0;
};
SignalCost measure_signal_cost(pager::Pager& pager);

}  // namespace farside::preload
