// Call stacks for the recorder. Stacks are distinguished by the code addresses on them. Of each distinct stack one copy
// is kept: the registers, and up to 16 KiB from the stack pointer on, which `farside trace` unwinds after the run.
// Recording a stack that is known costs a scan of at most 1024 words. Thread-safe and async-signal-safe, except
// start_stacks. Memory comes from the kernel directly, so that tracing takes nothing from the frame budget.
#pragma once
#include "abi/trace_file.h"
#include "base/status.h"

namespace farside::preload {

struct StackRegisters {
  uint64_t value[kTraceRegisters];
  uint64_t ip() const { return value[kTraceRip]; }
  uint64_t sp() const { return value[kTraceRsp]; }
};

inline constexpr uint64_t kMaxTraceStacks = 16384;
inline constexpr uint64_t kMaxStackBytes = uint64_t{64} << 20;  // of all copies together

// Stacks in [far_begin, far_begin + far_bytes) are not the program's own: only near ones can be read in a fault.
Status start_stacks(uint64_t far_begin, uint64_t far_bytes);

// Records the stack, and returns its key; 0: the table is full.
uint64_t note_stack(const StackRegisters& registers);

// Executable memory was mapped: the mappings are read again at the next fault.
void note_code_change();

// Called in the child of a fork: thread and process have new ids.
void forget_thread_stack();

// The id of the calling thread. A system call only at the first use.
uint32_t traced_thread();

// For writing the file.
const TraceStack* trace_stacks();  // kMaxTraceStacks entries, some of them empty
const std::byte* trace_stack_bytes();
uint64_t trace_stack_bytes_used();

}  // namespace farside::preload
