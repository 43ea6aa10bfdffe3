// The file that the recorder (preload/trace) writes for `farside trace`. It has one block for each process that ended.
// A block is a TraceHeader, followed by these arrays in this order, with the numbers of elements given in the header:
//
//   TraceEntry entries[]    faults, by call stack, kind and thread
//   TraceStack stacks[]     registers of each call stack, and the place of its bytes
//   TraceSite sites[]       allocations, by call stack
//   TraceHint hints[]       hints, by the place of the call
//   TracePythonCode codes[]     code objects of CPython, in the order in which they were seen
//   TracePythonFrame frames[]   frames of CPython, to which stacks refer
//   stack bytes             copies of parts of program stacks
//   Python text             names and line tables of the code objects
//   text of /proc/self/maps; path of the program
//
// Writer and reader are of the same build and run on the same machine, so structs are written as they are. The version
// detects files of another build.
#pragma once
#include <cstdint>

#include "abi/trace_pattern.h"

namespace farside {

inline constexpr uint64_t kTraceMagic = 0x3165636172547246;  // "FrTrace1"
inline constexpr uint32_t kTraceVersion = 2;

enum class TraceKind : uint32_t {
  kRead = 0,        // fetched for reading
  kWrite = 1,       // fetched for writing
  kProtection = 2,  // first write to a page that was fetched for reading
  kAllocation = 3,  // first touch of a page
};
inline constexpr unsigned kTraceKinds = 4;

struct TraceHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t pid;
  uint64_t entries, stacks, sites, hints, python_codes, python_frames;
  uint64_t stack_bytes, python_text_bytes, maps_bytes, program_bytes;
  uint64_t dropped;           // faults not recorded because the tables were full
  uint64_t near_limit_bytes;  // of the process, at its end
};
static_assert(sizeof(TraceHeader) == 112);

// Registers with their DWARF numbers on x86-64: rax rdx rcx rbx rsi rdi rbp rsp r8..r15, instruction pointer.
inline constexpr unsigned kTraceRegisters = 17;
inline constexpr unsigned kTraceRbp = 6, kTraceRsp = 7, kTraceRip = 16;

struct TraceStack {
  uint64_t key;  // 0: empty
  uint64_t registers[kTraceRegisters];
  uint64_t offset, bytes;                      // within the stack bytes; the memory from the stack pointer upwards
  uint32_t first_python_frame, python_frames;  // innermost first
};

struct TracePythonFrame {
  static constexpr uint32_t kUnknown = UINT32_MAX;
  uint32_t code;         // index of a TracePythonCode, or kUnknown
  uint32_t instruction;  // that is executed, in bytes from the code's start
  uint32_t is_entry;     // the interpreter's C function was called for this frame; otherwise it runs the callers' too
};

// Code objects may be freed and others take their addresses: the line table and the first line distinguish them.
struct TracePythonCode {
  uint64_t address, lines_address;
  uint32_t first_line;
  uint32_t text;  // offset within the Python text of: the file's name, the function's name, the line table
  uint32_t file_bytes, name_bytes, lines_bytes;
  uint32_t pad;
};

struct TraceEntry {
  struct SiteCount {
    uint64_t site, count;
  };
  static constexpr unsigned kSites = 4;
  uint64_t key;    // of stack, kind and thread; 0: empty
  uint64_t stack;  // key of a TraceStack
  uint32_t thread;
  TraceKind kind;
  uint64_t count;
  SiteCount sites[kSites];  // index of a TraceSite; the most frequent ones, by Misra and Gries
  TracePattern pattern;
};

struct TraceSite {
  uint64_t stack;  // key of a TraceStack; 0: empty
  uint64_t bytes;  // total allocated; estimated from samples where allocations are small
  uint64_t largest;
};

struct TraceHint {
  uint64_t return_address;  // 0: empty
  uint64_t calls, fetched;
};

}  // namespace farside
