// What the kernel alone permits, without Farside: signals whose handler returns at once, absent pages that threads map
// for themselves, and pages that are dropped while other cores run the program. Each function takes the signal handlers
// of the calling process, which should be a child for this measurement.
#pragma once
#include <nlohmann/json.hpp>

#include "base/status.h"

namespace farside::bench::scale {

// "threads" of one process share its signal lock. "processes" that share its memory, but not its signal handlers, have
// a lock each: the difference is the lock's.
enum class Workers { kThreads, kProcesses };

// How a worker's operation meets the kernel.
enum class Operation {
  kMask,     // two changes of the signal mask: the signal lock, taken twice
  kSignal,   // SIGSEGV of an address that no mapping has
  kAbsent,   // SIGBUS of an absent page of userfaultfd, which stays absent
  kCopy,     // UFFDIO_COPY without a fault
  kResolve,  // SIGBUS of an absent page, whose handler maps it by UFFDIO_COPY
};

struct AloneCase {
  const char* name;
  Operation operation;
  Workers workers = Workers::kThreads;
  bool separate = false;  // a mapping and a userfaultfd for each worker
};
inline constexpr AloneCase kAloneCases[] = {
    {"signal", Operation::kSignal},
    {"signal mask", Operation::kMask},
    {"signal, processes", Operation::kSignal, Workers::kProcesses},
    {"absent page", Operation::kAbsent},
    {"absent page, a userfaultfd each", Operation::kAbsent, Workers::kThreads, true},
    {"copy", Operation::kCopy},
    {"copy, a userfaultfd each", Operation::kCopy, Workers::kThreads, true},
    {"fault and copy", Operation::kResolve},
    {"fault and copy, a userfaultfd each", Operation::kResolve, Workers::kThreads, true},
    {"fault and copy, processes", Operation::kResolve, Workers::kProcesses},
    {"fault and copy, processes, a userfaultfd each", Operation::kResolve, Workers::kProcesses, true},
};

// {"per_s": operations of all workers, "us": of one worker for an operation}
Result<nlohmann::json> measure_alone(const AloneCase& alone, unsigned workers, double seconds);

// Some of the threads drop pages by madvise(MADV_DONTNEED), the others compute and are interrupted by the shootdowns.
struct DropCase {
  const char* name;
  unsigned pages;  // of a call
  unsigned at_once;
};
inline constexpr DropCase kDropCases[] = {
    {"drop 1 page", 1, 1}, {"drop 256 pages", 256, 1}, {"drop 256 pages, 4 at once", 256, 4}};

// {"us": of a call, the median; "pages_per_s": that all droppers dropped while they did nothing else}
Result<nlohmann::json> measure_drops(const DropCase& drop, unsigned threads, double seconds);

}  // namespace farside::bench::scale
