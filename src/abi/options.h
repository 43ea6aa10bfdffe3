// The options of a run. `farside run` converts its command line to the FARSIDE_* variables listed here, and the preload
// library reads the variables in the program. Both use the same table, so each option exists in both.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/size.h"
#include "base/status.h"

namespace farside {

enum class FaultMode { kAuto, kSignal, kHandler };
enum class PolicyKind { kFifo, kLru, kPriority, kTwoQueue };
inline constexpr unsigned kPolicyKinds = 4;
inline constexpr unsigned kMaxEvictors = 8;
// How far objects are fetched: per segment, according to the share of it that was accessed; or all by one path.
enum class Paths { kHybrid, kPageOnly, kObjectOnly };
// What is written back of a changed page: the whole page, its changed cache lines, or what measures faster.
enum class WriteBack { kAuto, kPage, kLine };

// When near memory is made of huge pages of 2 MiB: for streams, and where the kernel would give the program huge pages;
// for all large blocks as well; or never.
enum class HugePages { kAuto, kAlways, kNever };

// What of far memory a core dump has: the pages that were near, all of it, or nothing, since no core is written.
enum class CoreContent { kNear, kAll, kNone };

// "fifo", "lru", "priority", "2q"; followed by a zero byte.
std::string_view policy_name(PolicyKind kind);
bool policy_from_name(std::string_view name, PolicyKind* kind);

struct Options {
  SizeOrShare local{0, 0.5};              // near memory of the program's heap
  char far_address[1024] = "";            // of the memory servers; the launcher sets it for the embedded server, too
  unsigned replicas = 1;                  // servers that store each page
  uint64_t patience_ns = 25'000'000'000;  // how long to wait for memory servers that do not reply
  int token_fd = -1;                      // has the token (abi/token_fd.h); -1: there is none
  char token[128] = "";                   // not from the environment: the launcher and the program set it
  char tls_relay[108] = "";               // socket of the launcher's TLS relay
  char ucx_relay[108] = "";               // socket of its UCX relay
  bool require_tls = false;               // to servers and controllers that are not on this machine
  FaultMode fault = FaultMode::kAuto;
  PolicyKind policy = PolicyKind::kTwoQueue;
  unsigned evictors = 0;  // maximum, 1 .. kMaxEvictors; 0: one for every four processors
  bool prefetch = true;
  Paths paths = Paths::kHybrid;
  WriteBack writeback = WriteBack::kPage;
  HugePages huge = HugePages::kAuto;
  CoreContent core = CoreContent::kNear;
  uint64_t space = uint64_t{256} << 30;  // addresses reserved for far memory
  char report[256] = "";                 // file to which each process appends its statistics as one line of JSON
  char trace[256] = "";                  // file to which each process appends its recorded faults
  bool quiet = false;
  bool announce = false;  // print the fault mode and the reason; set by the launcher for its first process
};

// One row per variable. Internal ones are passed from the launcher to the program and have no flag.
struct OptionName {
  std::string_view variable;  // "FARSIDE_LOCAL"
  std::string_view flag;      // "--local"; "" where internal
  std::string_view help;
  bool internal;
  std::string_view choices = {};  // "on,off": the values that are allowed, where there are so few
};
std::span<const OptionName> option_names();

// Sets one option from the text of its variable. EINVAL with a text for the user when the name or the value is invalid.
// FARSIDE_LOG sets the level of base/log.h at once.
Status set_option(Options* options, std::string_view variable, std::string_view value);

// Sets options->token. EINVAL if it is too long.
Status set_token(Options* options, std::string_view token);

// Reads all FARSIDE_* variables of an environment. The error of an unknown name suggests the most similar one.
// Allocates no memory, so it may be called before the heap exists.
Status options_from_environment(const char* const* environment, Options* options);

}  // namespace farside
