// What the recorder (heap/trace) leaves for `farside trace`: a file of blocks, one for each process that ended. A block
// is a TraceHeader and then, in this order and as many as the header says:
//
//   TraceEntry entries[]    faults, by call stack, kind and thread
//   TraceStack stacks[]     where the bytes of each stack lie
//   TraceSite sites[]       allocations, by call stack
//   TraceHint hints[]       hints, by the place of the call
//   stack bytes             pieces of program stacks
//   text of /proc/self/maps; path of the program
//
// Both ends are of one build and one machine; the version guards against a file left over from another.
#pragma once
#include <cstdint>

#include "abi/trace_pattern.h"

namespace farside {

inline constexpr uint64_t kTraceMagic = 0x3165636172547246;  // "FrTrace1"
inline constexpr uint32_t kTraceVersion = 1;

enum class TraceKind : uint32_t {
  kRead = 0,        // fetched for reading
  kWrite = 1,       // fetched for writing
  kProtection = 2,  // first write to a page that came for reading
  kAllocation = 3,  // first touch of a page
};
inline constexpr unsigned kTraceKinds = 4;

struct TraceHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t pid;
  uint64_t entries, stacks, sites, hints, stack_bytes, maps_bytes, program_bytes;
  uint64_t dropped;           // faults that found the tables full
  uint64_t near_limit_bytes;  // of the process, at its end
};
static_assert(sizeof(TraceHeader) == 88);

// Registers as DWARF numbers them on x86-64: rax rdx rcx rbx rsi rdi rbp rsp r8..r15, and the instruction pointer.
inline constexpr unsigned kTraceRegisters = 17;
inline constexpr unsigned kTraceRbp = 6, kTraceRsp = 7, kTraceRip = 16;

struct TraceStack {
  uint64_t key;  // 0: empty
  uint64_t registers[kTraceRegisters];
  uint64_t offset, bytes;  // within the stack bytes; what lay at the stack pointer and above
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
  SiteCount sites[kSites];  // number of a TraceSite; the most common ones, by Misra and Gries
  TracePattern pattern;
};

struct TraceSite {
  uint64_t stack;  // key of a TraceStack; 0: empty
  uint64_t bytes;  // allocated there in all, estimated from samples where allocations are small
  uint64_t largest;
};

struct TraceHint {
  uint64_t return_address;  // 0: empty
  uint64_t calls, fetched;
};

}  // namespace farside
