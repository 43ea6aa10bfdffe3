// The registers of a system call that was trapped, as the kernel passes them to the handler. Async-signal-safe.
#pragma once
#include <ucontext.h>

#include <cstdint>

#include "preload/guard/calls/call.h"

namespace farside::preload {

using Registers = greg_t*;

inline Registers registers_of(ucontext_t* context) { return context->uc_mcontext.gregs; }

inline Call call_of(ucontext_t* context) {
  Registers r = registers_of(context);
  return {r[REG_RAX],
          {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]},
          static_cast<uint64_t>(r[REG_RSP])};
}

}  // namespace farside::preload
