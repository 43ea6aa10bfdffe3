// The options of a run. `option_table.cc` has one row for each: command line, environment, help texts, manual and the
// tables of the documents are made from these rows. A value is parsed once, by the launcher; the processes of the run
// get the struct below (abi/run_block.h).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/compression.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"

namespace farside {

// The order of the enumerators is that of the words in the rows of the table.
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

inline constexpr size_t kPathBytes = 1024;
using PathText = char[kPathBytes];

// So many times larger than far space is a limit on addresses that the run begins with.
inline constexpr uint64_t kSpacesInLimit = 5;

// Plain data, without pointers: it is copied to the processes of a run as it is. Texts end with a zero byte.
struct Options {
  // What the program's processes read.
  SizeOrShare local{0, SizeOrShare::kAutomatic};  // near memory of the program's heap
  double slowdown = 0.1;                          // local is automatic: the accepted loss, as a part of the other time
  char far_address[1024] = "";            // of the memory servers; the launcher sets it for the embedded server, too
  unsigned replicas = 1;                  // servers that store each page
  uint64_t patience_ns = 25'000'000'000;  // how long to wait for memory servers that do not reply
  bool require_tls = false;               // to servers and controllers that are not on this machine
  FaultMode fault = FaultMode::kAuto;
  HugePages huge = HugePages::kAuto;
  CoreContent core = CoreContent::kNear;
  bool quiet = false;
  LogLevel log = LogLevel::kWarning;
  PolicyKind policy = PolicyKind::kTwoQueue;
  unsigned evictors = 0;  // maximum, 1 .. kMaxEvictors; 0: one for every four processors
  bool prefetch = true;
  Paths paths = Paths::kHybrid;
  double page_share = 0.8;  // of a segment's lines, from which on hybrid paths fetch it as a page (Atlas 5.4)
  WriteBack writeback = WriteBack::kPage;
  uint64_t space = uint64_t{256} << 30;  // addresses reserved for far memory
  PathText trace = "";                   // file to which each process appends its recorded faults
  PathText sample = "";                  // begin of the names of the files with each process's samples

  // What the launcher sets for them; not options.
  char token[128] = "";      // the servers' secret, or the descriptors of a far file (abi/run_block.h)
  char tls_relay[108] = "";  // socket of the launcher's TLS relay
  char ucx_relay[108] = "";  // socket of its UCX relay
  char report[256] = "";     // file to which each process appends its statistics as one line of JSON

  // What only the launcher reads.
  uint64_t far_memory = 0;                    // bytes that an embedded server lends; 0: half of this machine's RAM
  bool offload = false;                       // an embedded server executes functions
  Compression compress = Compression::kAuto;  // how an embedded server compresses, unless it executes functions
  bool verbose = false;                       // print all of the summary
  bool tls_verify_clients = false;            // of farside serve
  PathText overflow = "";                     // PATH:SIZE, for what an embedded server has no room for in far_memory
  PathText token_file = "", tls_ca = "", tls_cert = "", tls_key = "";
  char tls_name[256] = "";            // "": the host of each address
  char ucx[256] = "ib";               // transports of UCX, as in UCX_TLS: by default network cards
  PathText stats = "", metrics = "";  // with the form that they are given in: "json:FILE"
  PathText timeline = "";

  bool operator==(const Options&) const = default;
};

// Which processes read an option. kServer: farside serve alone. kInternal: a command of Farside sets its variable.
enum class Scope { kLauncher, kProgram, kBoth, kServer, kInternal };

struct OptionRow;
// Sets the value of an option from its text, which is not empty. False: it is no such value, or out of the range.
using OptionSetter = bool (*)(Options*, const OptionRow&, std::string_view text);

// A row of the table. Options that are given as KEY=VALUE of another one have "--tune policy" as name and
// "FARSIDE_TUNE policy" as variable.
struct OptionRow {
  std::string_view name;
  std::string_view variable;
  std::string_view value;          // what the help calls the value; "" for a flag
  std::string_view default_value;  // in words where it is computed; "" where there is none
  std::string_view range;          // the limits or the words that the setter accepts, as users read them
  Scope scope;
  OptionSetter set;
  std::string_view help;
  bool rare = false;  // farside run --help-tune lists it, and not farside run --help

  bool is_flag() const { return value.empty(); }
  bool is_key() const { return name.find(' ') != name.npos; }
  bool takes_commas() const { return value.find(',') != value.npos; }
  std::string_view key() const { return name.substr(name.find(' ') + 1); }
};
std::span<const OptionRow> option_rows();

// The row with this name or variable, or nullptr.
const OptionRow* find_option(std::string_view name);
// The rows that are given as KEY=VALUE of this one.
std::vector<const OptionRow*> keys_of(const OptionRow& row);
// "how page faults are served: auto, signal or handler (default auto)".
std::string describe_option(const OptionRow& row);

// Sets one option by its name or variable, which the error uses. EINVAL for an unknown name, an empty value, or one out
// of the range, which the error names.
Status set_option(Options* options, std::string_view name, std::string_view value);

// An option on a command line: its row and its text.
struct GivenOption {
  const OptionRow* row;
  std::string text;
};

// Sets all options that are in the environment or were given; those that were given win. The error of an unknown
// FARSIDE_* variable suggests the one that was meant.
Status read_options(const char* const* environment, std::span<const GivenOption> given, Options* options);

// Copies a text into a field. EINVAL if it is too long; `what` begins the error.
Status copy_text(std::string_view text, std::span<char> field, std::string_view what);

}  // namespace farside
