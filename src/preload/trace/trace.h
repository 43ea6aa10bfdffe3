// The recorder of `farside trace`. For every fault in signal mode it records kind, thread, address and call stack,
// summed up in tables of fixed size while the program runs, and appended to the file in FARSIDE_TRACE when the process
// ends. Cost of a fault: a scan of the stack and two table look-ups; while tracing is off, a load and a branch.
// Several threads may call it at the same time: each has its own entries; when the table is crowded, new ones are
// shared and their counts are approximate. Async-signal-safe, except start_trace and write_trace. Memory comes from the
// kernel directly.
#pragma once
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "pager/pager.h"

namespace farside::preload {

extern bool g_tracing;  // set once, before main
inline bool tracing() { return __builtin_expect(g_tracing, 0); }

Status start_trace(const char* file, pager::Pager* pager);

// A fault that is about to be served; its kind follows from the page word. Called in the SIGBUS handler.
void trace_fault(uint64_t address, bool write, const ucontext_t* context);

// An allocation or mapping of the program; ignored if it is not far. Called by ordinary code and by the SIGSYS handler.
void trace_allocation(const void* memory, size_t bytes);

// Executable memory was mapped.
void trace_code_change();

// A hint that passed the inline check. fetched: it fetched a page. return_address: identifies the line of the hint.
void trace_hint(uint64_t address, bool fetched, const void* return_address);

// Called in the child of a fork: clears the tables.
void trace_in_child();

// Appends the tables to the file. Later calls do nothing.
void write_trace();

}  // namespace farside::preload
