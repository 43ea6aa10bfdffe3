// The options of a run. `farside run` turns its command line into the FARSIDE_* variables listed here, and the preload
// library reads them in the program; both use this one table, so that no option exists in one place only.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/size.h"
#include "base/status.h"

namespace farside {

enum class FaultMode { kAuto, kSignal, kHandler };
enum class PolicyKind { kFifo, kSecondChance, kLru, kPriority };
inline constexpr unsigned kPolicyKinds = 4;
inline constexpr unsigned kMaxEvictors = 8;
// How far objects come back: each segment's by what was used of it, or all one way.
enum class Paths { kHybrid, kPageOnly, kObjectOnly };
// What of a changed page is written back: the page, or the lines of it that have changed; or whatever costs less.
enum class WriteBack { kAuto, kPage, kLine };

// "fifo", "second-chance", "lru", "priority"; ends with a zero byte.
std::string_view policy_name(PolicyKind kind);
bool policy_from_name(std::string_view name, PolicyKind* kind);

struct Options {
  SizeOrShare local{0, 0.5};              // near memory that the program's heap may use
  char far_address[1024] = "";            // where far memory is; set by the launcher also for the embedded server
  unsigned replicas = 1;                  // servers that hold each page
  uint64_t patience_ns = 25'000'000'000;  // with memory servers that do not answer
  char token[128] = "";                   // secret for the server
  FaultMode fault = FaultMode::kAuto;
  PolicyKind policy = PolicyKind::kSecondChance;
  unsigned evictors = 0;  // at most so many, 1 .. kMaxEvictors; 0: one for every four processors
  bool prefetch = true;
  Paths paths = Paths::kHybrid;
  WriteBack writeback = WriteBack::kPage;
  uint64_t space = uint64_t{256} << 30;  // addresses reserved for far memory
  char report[256] = "";                 // file to which each process appends its statistics as one line of JSON
  char trace[256] = "";                  // file to which each process appends what it recorded of its faults
  bool quiet = false;
  bool announce = false;  // print the fault mode and why; set by the launcher for its first process
};

// One row per variable; `internal` ones are passed from the launcher to the program and have no command line form.
struct OptionName {
  std::string_view variable;  // "FARSIDE_LOCAL"
  std::string_view flag;      // "--local"; "" where internal
  std::string_view help;
  bool internal;
};
std::span<const OptionName> option_names();

// Sets one option from its variable's text. EINVAL with a text for people when the value or the name is wrong.
Status set_option(Options* options, std::string_view variable, std::string_view value);

// Reads all FARSIDE_* variables of an environment. Unknown names are errors that name the nearest known one.
// Allocates nothing.
Status options_from_environment(const char* const* environment, Options* options);

}  // namespace farside
