// Frames of CPython 3.11 to 3.13 for the recorder: of each fault the code objects and instructions that the thread
// executes, read from the interpreter's own structures. The names and line tables of a code object are copied when it
// is first seen, since it may be freed before the end. Lock-free and async-signal-safe, except start_python. Memory
// comes from the kernel directly.
#pragma once
#include "abi/trace_file.h"
#include "base/status.h"
#include "pager/pager.h"

namespace farside::preload {

// The Python frames of one fault, innermost first; the outermost ones of deep stacks are missing.
struct PythonStack {
  static constexpr unsigned kMax = 48;
  struct Frame {
    uint64_t code;  // address of the code object
    uint32_t instruction, is_entry;
  };
  unsigned count = 0;
  Frame frames[kMax];
};

// Looks for an interpreter in the program, which may have none.
Status start_python(pager::Pager* pager);

// An address in the interpreter's code; 0: the program has no interpreter.
uint64_t python_code_address();

// The frames of the calling thread. Never faults: what is not near is missing.
void read_python_stack(PythonStack* stack);

// Keeps the frames for the file, with the code objects of the new ones, which are fetched if they are far.
void keep_python_stack(const PythonStack& stack, TraceStack* to);

// Called in the child of a fork.
void forget_python_busy();

// For writing the file.
const TracePythonCode* python_codes(uint64_t* count);
const TracePythonFrame* python_frames(uint64_t* count);
const std::byte* python_text(uint64_t* bytes);

}  // namespace farside::preload
