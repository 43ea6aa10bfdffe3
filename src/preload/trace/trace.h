// The recorder behind `farside trace`: for every fault in signal mode its kind, thread, address and call stack, added
// up in tables of fixed size while the program runs and appended to FARSIDE_TRACE's file when it ends. What it learns
// of a fault costs one scan of the stack and two look-ups; off, one load and a branch.
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

// A fault that is about to be served: its kind is read from the page's word as it is now. In the SIGBUS handler.
void trace_fault(uint64_t address, bool write, const ucontext_t* context);

// Memory that the program was given; ignored where it is not far. From ordinary code and from the SIGSYS handler.
void trace_allocation(const void* memory, size_t bytes);

// Code was mapped.
void trace_code_change();

// A hint that got past its inline guard; `fetched`: it brought a page near. return_address: where the program goes on.
void trace_hint(uint64_t address, bool fetched, const void* return_address);

// In the child of a fork: it begins counting anew.
void trace_in_child();

// Appends the tables to the file, once.
void write_trace();

}  // namespace farside::preload
