#include "preload/guard/traps/masked_waits.h"

#include <sys/syscall.h>
#include <time.h>

#include "base/bits.h"
#include "preload/guard/calls/guarded_call.h"
#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/thread/pins.h"

namespace farside::preload {
namespace {

// False: the address is 0, or one that the kernel cannot read either.
template <typename Structure>
bool load(const Call& call, long address, Structure* to) {
  return address && load_structure(to, reinterpret_cast<void*>(address), sizeof *to, call.stack_pointer);
}

// The mask is copied to near memory, without SIGBUS and SIGSYS.
long call_with_mask(const Call& call, int mask_arg) {
  os::SignalSet mask;
  if (!load(call, call.arg[mask_arg], &mask)) return guarded_call(call);
  mask = without_ours(mask);
  this_guard().wait_mask = mask;
  Call changed = call;
  changed.arg[mask_arg] = reinterpret_cast<long>(&mask);
  return guarded_call(changed);
}

struct MaskArgument {  // of pselect6
  const os::SignalSet* set;
  size_t bytes;
};

long pselect_call(const Call& call) {
  Call changed = call;
  MaskArgument argument = {};
  os::SignalSet mask = 0;
  if (load(call, call.arg[5], &argument)) {
    if (load(call, reinterpret_cast<long>(argument.set), &mask)) {
      mask = without_ours(mask);
      this_guard().wait_mask = mask;
      argument.set = &mask;
    }
    changed.arg[5] = reinterpret_cast<long>(&argument);
  }
  Pins pins(call.stack_pointer);
  uint64_t set_bytes = call.arg[0] > 0 ? align_up(static_cast<uint64_t>(call.arg[0]), 64) / 8 : 0;
  for (int i = 1; i <= 3; i++) pins.add(reinterpret_cast<void*>(call.arg[i]), set_bytes, true);
  pins.add(reinterpret_cast<void*>(call.arg[4]), sizeof(timespec), true);
  return issue(changed);
}

long ppoll_call(const Call& call) {
  Pins pins(call.stack_pointer);
  pins.add(reinterpret_cast<void*>(call.arg[0]), static_cast<uint64_t>(call.arg[1]) * 8, true);
  pins.add(reinterpret_cast<void*>(call.arg[2]), sizeof(timespec), true);
  return call_with_mask(call, 3);
}

long epoll_pwait_call(const Call& call) {
  Pins pins(call.stack_pointer);
  pins.add(reinterpret_cast<void*>(call.arg[1]), static_cast<uint64_t>(call.arg[2]) * 12, true);
  if (call.number == SYS_epoll_pwait2) pins.add(reinterpret_cast<void*>(call.arg[3]), sizeof(timespec), false);
  return call_with_mask(call, 4);
}

}  // namespace

bool masked_wait_call(const Call& call, long* result) {
  switch (call.number) {
    case SYS_rt_sigsuspend:
      *result = call_with_mask(call, 0);
      return true;
    case SYS_ppoll:
      *result = ppoll_call(call);
      return true;
    case SYS_pselect6:
      *result = pselect_call(call);
      return true;
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      *result = epoll_pwait_call(call);
      return true;
    default:
      return false;
  }
}

bool waits_with_mask(const Call& call) {
  switch (call.number) {
    case SYS_rt_sigsuspend:
      return true;
    case SYS_ppoll:
      return call.arg[3] != 0;
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      return call.arg[4] != 0;
    case SYS_pselect6: {
      auto* mask = reinterpret_cast<const MaskArgument*>(call.arg[5]);
      return mask && mask->set;
    }
    default:
      return false;
  }
}

}  // namespace farside::preload
