#include "abi/options.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>

#include "base/bits.h"
#include "base/log.h"

namespace farside {
namespace {

constexpr OptionName kNames[] = {
    {"FARSIDE_LOCAL", "--local",
     "near memory for the program's heap: a size (256M) or a share of its largest size so far (25%); default 50%",
     false},
    {"FARSIDE_FAR", "--far",
     "memory servers, separated by commas: tcp://HOST:PORT, tls://HOST:PORT, ucx://HOST:PORT or shm://SOCKET; or a "
     "pool's controller: pool://HOST:PORT or pool+tls://HOST:PORT; or a file or block device of this machine: "
     "file:/PATH?size=64G (default: a server is started for this run)",
     false},
    {"FARSIDE_REPLICAS", "--replicas", "memory servers that store each page, 1 to 16; all but one may fail (default 1)",
     false},
    {"FARSIDE_FAR_MEMORY", "--far-memory",
     "memory that the server started for this run lends (default: half of this machine's RAM)", false},
    {"FARSIDE_OFFLOAD", "--offload",
     "the server started for this run executes functions of the program (see farside/offload.hpp)", false},
    {"FARSIDE_PATIENCE", "--patience",
     "seconds to wait for a memory server that does not respond, 0.1 to 29 (default 25)", false},
    {"FARSIDE_TOKEN_FILE", "--token-file", "file whose first line is the servers' secret", false},
    {"FARSIDE_TLS_CA", "--tls-ca",
     "PEM file of the authorities that servers' certificates must be of (default: the system's)", false},
    {"FARSIDE_TLS_CERT", "--tls-cert", "PEM file of the certificate that servers over TLS may require", false},
    {"FARSIDE_TLS_KEY", "--tls-key", "PEM file of its private key", false},
    {"FARSIDE_TLS_NAME", "--tls-name", "name in the certificates of the servers (default: the host in their address)",
     false},
    {"FARSIDE_REQUIRE_TLS", "--require-tls", "refuse connections to other hosts that are not encrypted", false},
    {"FARSIDE_UCX", "--ucx", "transports of UCX for ucx:// addresses, as in UCX_TLS (default ib: network cards)",
     false},
    {"FARSIDE_FAULT", "--fault", "how page faults are served: auto, signal or handler (default auto)", false,
     "auto,signal,handler"},
    {"FARSIDE_POLICY", "--policy", "which pages are evicted first: 2q, fifo, lru or priority (default 2q)", false,
     "2q,fifo,lru,priority"},
    {"FARSIDE_EVICTORS", "--evictors",
     "maximum number of threads that evict pages, 1 to 8 (default: one for every four processors)", false},
    {"FARSIDE_PREFETCH", "--prefetch", "fetch ahead of sequential and strided access: on or off (default on)", false,
     "on,off"},
    {"FARSIDE_HUGE", "--huge",
     "use of 2 MiB pages: auto (streams, and where the kernel would use them), always (all large blocks) or never "
     "(default auto)",
     false, "auto,always,never"},
    {"FARSIDE_PATHS", "--paths", "how far objects are fetched: hybrid, page or object (default hybrid)", false,
     "hybrid,page,object"},
    {"FARSIDE_WRITEBACK", "--writeback", "what of a changed page is written back: page, line or auto (default page)",
     false, "page,line,auto"},
    {"FARSIDE_CORE", "--core",
     "what core dumps have of far memory: near (what was near), all (fetched at a crash) or none (no core is written) "
     "(default near)",
     false, "near,all,none"},
    {"FARSIDE_SPACE", "--space", "addresses reserved for far memory, 64M to 16T (default 256G)", false},
    {"FARSIDE_STATS", "--stats", "json:FILE writes the run's statistics to FILE", false},
    {"FARSIDE_METRICS", "--metrics", "HOST:PORT to serve the run's metrics at, for Prometheus", false},
    {"FARSIDE_METRICS_FILE", "--metrics-file",
     "file to write the run's metrics to every 5 s, for the node exporter's textfile collector", false},
    {"FARSIDE_QUIET", "--quiet", "print nothing but errors", false},
    {"FARSIDE_LOG", "--log", "least severe messages to print: error, warning, info or debug (default warning)", false,
     "error,warning,info,debug"},
    {"FARSIDE_TLS_RELAY", "", "socket of the TLS relay, from the launcher", true},
    {"FARSIDE_UCX_RELAY", "", "socket of the UCX relay, from the launcher", true},
    {"FARSIDE_TOKEN_FD", "", "the descriptor that has the servers' secret, from the launcher", true},
    {"FARSIDE_ANNOUNCE", "", "say which fault mode was taken, from the launcher", true},
    {"FARSIDE_STATIC_PROGRAM", "", "the program that static_loader is to execute", true},
    {"FARSIDE_REPORT", "", "file for each process's statistics, from the launcher", true},
    {"FARSIDE_TRACE", "", "file for each process's recorded faults, from farside trace", true},
};

constexpr std::string_view kPolicyNames[kPolicyKinds] = {"fifo", "lru", "priority", "2q"};

Status copy_text(std::string_view value, char* to, size_t room, std::string_view variable) {
  if (value.size() >= room) return Status::error(EINVAL, "{} is longer than {} characters", variable, room - 1);
  memcpy(to, value.data(), value.size());
  to[value.size()] = 0;
  return {};
}

Status bad_value(std::string_view variable, std::string_view value, std::string_view allowed) {
  return Status::error(EINVAL, "{}={} is not known; use {}", variable, value, allowed);
}

Status set_huge(Options* options, std::string_view variable, std::string_view value) {
  if (value == "auto") options->huge = HugePages::kAuto;
  else if (value == "always") options->huge = HugePages::kAlways;
  else if (value == "never") options->huge = HugePages::kNever;
  else return bad_value(variable, value, "auto, always or never");
  return {};
}

Status set_core(Options* options, std::string_view variable, std::string_view value) {
  if (value == "near") options->core = CoreContent::kNear;
  else if (value == "all") options->core = CoreContent::kAll;
  else if (value == "none") options->core = CoreContent::kNone;
  else return bad_value(variable, value, "near, all or none");
  return {};
}

Status set_far(Options* options, std::string_view variable, std::string_view value) {
  constexpr std::string_view kSchemes[] = {"tcp://", "tls://", "ucx://", "shm://", "file:", "pool://", "pool+tls://"};
  bool known = std::any_of(std::begin(kSchemes), std::end(kSchemes), [&](auto s) { return value.starts_with(s); });
  if (value.empty() || known) return copy_text(value, options->far_address, sizeof options->far_address, variable);
  return bad_value(
      "--far", value,
      "tcp://host:port, tls://host:port, ucx://host:port, shm://socket, file:/path?size=64G or pool://host:port");
}

// What only the launcher reads, and has checked.
bool is_for_launcher(std::string_view variable) {
  constexpr std::string_view kVariables[] = {"FARSIDE_FAR_MEMORY", "FARSIDE_TOKEN_FILE", "FARSIDE_STATS",
                                             "FARSIDE_TLS_CA",     "FARSIDE_TLS_CERT",   "FARSIDE_TLS_KEY",
                                             "FARSIDE_TLS_NAME",   "FARSIDE_METRICS",    "FARSIDE_METRICS_FILE",
                                             "FARSIDE_OFFLOAD",    "FARSIDE_UCX"};
  return std::find(std::begin(kVariables), std::end(kVariables), variable) != std::end(kVariables);
}

Status set_flag(bool* flag, std::string_view variable, std::string_view value) {
  if (value != "on" && value != "off" && value != "1" && value != "0") return bad_value(variable, value, "on or off");
  *flag = value == "on" || value == "1";
  return {};
}

Status set_fault(Options* options, std::string_view variable, std::string_view value) {
  if (value == "auto") options->fault = FaultMode::kAuto;
  else if (value == "signal") options->fault = FaultMode::kSignal;
  else if (value == "handler") options->fault = FaultMode::kHandler;
  else return bad_value(variable, value, "auto, signal or handler");
  return {};
}

Status set_policy(Options* options, std::string_view variable, std::string_view value) {
  if (policy_from_name(value, &options->policy)) return {};
  return bad_value(variable, value, "2q, fifo, lru or priority");
}

Status set_writeback(Options* options, std::string_view variable, std::string_view value) {
  if (value == "auto") options->writeback = WriteBack::kAuto;
  else if (value == "page") options->writeback = WriteBack::kPage;
  else if (value == "line") options->writeback = WriteBack::kLine;
  else return bad_value(variable, value, "auto, page or line");
  return {};
}

Status set_paths(Options* options, std::string_view variable, std::string_view value) {
  if (value == "hybrid") options->paths = Paths::kHybrid;
  else if (value == "page") options->paths = Paths::kPageOnly;
  else if (value == "object") options->paths = Paths::kObjectOnly;
  else return bad_value(variable, value, "hybrid, page or object");
  return {};
}

Status set_evictors(Options* options, std::string_view variable, std::string_view value) {
  if (value.size() != 1 || value[0] < '1' || value[0] > static_cast<char>('0' + kMaxEvictors))
    return bad_value(variable, value, "a number from 1 to 8");
  options->evictors = static_cast<unsigned>(value[0] - '0');
  return {};
}

Status set_replicas(Options* options, std::string_view variable, std::string_view value) {
  constexpr unsigned kMax = 16;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options->replicas);
  bool good = error == std::errc() && end == value.data() + value.size();
  if (good && options->replicas >= 1 && options->replicas <= kMax) return {};
  return bad_value(variable, value, "a number from 1 to 16");
}

Status set_token_fd(Options* options, std::string_view variable, std::string_view value) {
  int fd = -1;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), fd);
  if (error != std::errc() || end != value.data() + value.size() || fd < 0)
    return bad_value(variable, value, "the number of a descriptor");
  options->token_fd = fd;
  return {};
}

Status set_patience(Options* options, std::string_view variable, std::string_view value) {
  constexpr double kMin = 0.1, kMax = 29, kSecondNs = 1e9;
  double seconds = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  bool good = error == std::errc() && end == value.data() + value.size() && seconds >= kMin && seconds <= kMax;
  if (!good) return bad_value(variable, value, "seconds from 0.1 to 29");
  options->patience_ns = static_cast<uint64_t>(seconds * kSecondNs);
  return {};
}

Status set_space(Options* options, std::string_view variable, std::string_view value) {
  Result<uint64_t> bytes = parse_size(value);
  if (!bytes.ok()) return Status::error(EINVAL, "--space: {}", bytes.status().text());
  if (*bytes < 64 * kMiB || *bytes > (uint64_t{16} << 40)) return bad_value(variable, value, "a size from 64M to 16T");
  options->space = align_up(*bytes, 16 * kMiB);
  return {};
}

Status set_local(Options* options, std::string_view value) {
  Result<SizeOrShare> local = parse_size_or_share(value);
  if (!local.ok()) return Status::error(EINVAL, "--local: {}", local.status().text());
  if (!local->is_share() && local->bytes < 8 * kMiB) {
    return Status::error(EINVAL, "--local {} is too little; at least 8M must be near", value);
  }
  options->local = *local;
  return {};
}

// The number of letters in common, in order: enough to suggest the name that was meant.
size_t common_letters(std::string_view a, std::string_view b) {
  size_t same = 0, at = 0;
  for (char c : a) {
    size_t found = b.find(c, at);
    if (found == b.npos) continue;
    same++;
    at = found + 1;
  }
  return same * 2 > a.size() + b.size() ? 0 : same;
}

std::string_view nearest_name(std::string_view variable) {
  std::string_view best = kNames[0].variable;
  size_t best_score = 0;
  for (const OptionName& name : kNames) {
    size_t score = common_letters(variable, name.variable);
    if (score <= best_score || name.internal) continue;
    best = name.variable;
    best_score = score;
  }
  return best;
}

}  // namespace

std::string_view policy_name(PolicyKind kind) { return kPolicyNames[static_cast<size_t>(kind)]; }

bool policy_from_name(std::string_view name, PolicyKind* kind) {
  for (size_t i = 0; i < kPolicyKinds; i++) {
    if (name != kPolicyNames[i]) continue;
    *kind = static_cast<PolicyKind>(i);
    return true;
  }
  return false;
}

std::span<const OptionName> option_names() { return kNames; }

Status set_option(Options* options, std::string_view variable, std::string_view value) {
  if (variable == "FARSIDE_LOCAL") return set_local(options, value);
  if (variable == "FARSIDE_FAR") return set_far(options, variable, value);
  if (variable == "FARSIDE_UCX_RELAY") return copy_text(value, options->ucx_relay, sizeof options->ucx_relay, variable);
  if (variable == "FARSIDE_TLS_RELAY") return copy_text(value, options->tls_relay, sizeof options->tls_relay, variable);
  if (variable == "FARSIDE_PATIENCE") return set_patience(options, variable, value);
  if (variable == "FARSIDE_REPLICAS") return set_replicas(options, variable, value);
  if (variable == "FARSIDE_TOKEN_FD") return set_token_fd(options, variable, value);
  if (variable == "FARSIDE_STATIC_PROGRAM") return {};  // static_loader reads it
  if (variable == "FARSIDE_REPORT") return copy_text(value, options->report, sizeof options->report, variable);
  if (variable == "FARSIDE_TRACE") return copy_text(value, options->trace, sizeof options->trace, variable);
  if (variable == "FARSIDE_FAULT") return set_fault(options, variable, value);
  if (variable == "FARSIDE_CORE") return set_core(options, variable, value);
  if (variable == "FARSIDE_HUGE") return set_huge(options, variable, value);
  if (variable == "FARSIDE_PATHS") return set_paths(options, variable, value);
  if (variable == "FARSIDE_WRITEBACK") return set_writeback(options, variable, value);
  if (variable == "FARSIDE_POLICY") return set_policy(options, variable, value);
  if (variable == "FARSIDE_EVICTORS") return set_evictors(options, variable, value);
  if (variable == "FARSIDE_PREFETCH") return set_flag(&options->prefetch, variable, value);
  if (variable == "FARSIDE_SPACE") return set_space(options, variable, value);
  if (variable == "FARSIDE_REQUIRE_TLS") return set_flag(&options->require_tls, variable, value);
  if (variable == "FARSIDE_QUIET") return set_flag(&options->quiet, variable, value);
  if (variable == "FARSIDE_ANNOUNCE") return set_flag(&options->announce, variable, value);
  if (variable == "FARSIDE_LOG") {
    LogLevel level;
    char name[16] = {};
    Status copied = copy_text(value, name, sizeof name, variable);
    if (!copied.ok() || !log_level_from_name(name, &level)) {
      return bad_value(variable, value, "error, warning, info or debug");
    }
    set_log_level(level);
    return {};
  }
  if (is_for_launcher(variable)) return {};
  return Status::error(EINVAL, "{} is not an option of Farside; did you mean {}?", variable, nearest_name(variable));
}

Status set_token(Options* options, std::string_view token) {
  return copy_text(token, options->token, sizeof options->token, "the token");
}

Status options_from_environment(const char* const* environment, Options* options) {
  for (; *environment; environment++) {
    std::string_view entry = *environment;
    if (!entry.starts_with("FARSIDE_")) continue;
    size_t equals = entry.find('=');
    if (equals == entry.npos) continue;
    Status s = set_option(options, entry.substr(0, equals), entry.substr(equals + 1));
    if (!s.ok()) return s;
  }
  return {};
}

}  // namespace farside
