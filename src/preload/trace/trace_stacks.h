// Call stacks for the recorder. A stack is told from others by the code addresses that lie on it; of each distinct one
// a copy is kept once (registers, and up to 16 KiB from the stack pointer on), which `farside trace` unwinds after the
// run. Recording a stack seen before costs a scan of at most 1024 words.
// Async-signal-safe; memory from the kernel directly, so that tracing takes nothing from the frame budget.
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

Status start_stacks();

// The key under which this stack is kept, 0 if the table is full.
uint64_t note_stack(const StackRegisters& registers);

// Code was mapped: what is executable is read anew at the next fault.
void note_code_change();

// In the child of a fork: the thread's identity is new.
void forget_thread_stack();

// The calling thread's id, and the process's; system calls only at their first use.
uint32_t traced_thread();
uint32_t traced_process();

// Reads memory of this process without ever faulting. Returns the bytes read from the start of the range.
size_t read_safely(uint64_t address, void* to, size_t bytes);

// For the writer.
const TraceStack* trace_stacks();  // kMaxTraceStacks places, empty ones among them
const std::byte* trace_stack_bytes();
uint64_t trace_stack_bytes_used();

}  // namespace farside::preload
