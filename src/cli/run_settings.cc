#include "cli/run_settings.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "abi/option_values.h"
#include "abi/run_block.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/size.h"
#include "report/machine.h"
#include "server/server.h"

namespace farside::cli {
namespace {

constexpr std::string_view kFile = "file:", kJson = "json:";

// A run that is started by another one, or by a benchmark, has its options, but for what it writes and its server.
Status inherit(Options* options) {
  int fd = run_fd_in(environ);
  if (fd < 0) return {};
  int r = read_run_fd(fd, options);
  if (r < 0)
    return Status::error(-r, "{}={}: this descriptor has no options of a run of this version; unset the variable",
                         kRunVariable, fd);
  options->stats[0] = options->metrics[0] = options->timeline[0] = 0;
  options->overflow[0] = 0;
  options->far_memory = 0;
  options->compress = Compression::kAuto;
  options->offload = false;
  return {};
}

// The token of the run in which this one is started names the descriptors of another far file.
bool has_other_far_file(const Options& options, const Options& outer) {
  std::string_view here = options.far_address, there = outer.far_address;
  return here != there && (here.starts_with(kFile) || there.starts_with(kFile));
}

Status check_overflow(const Options& options) {
  server::OverflowConfig ignored;
  return server::parse_overflow("--tune overflow", options.overflow, &ignored);
}

Status refuse_with_far(std::string_view option, std::string_view of_serve) {
  return Status::error(EINVAL,
                       "{} is for the server of this run, which --far replaces; start that one with farside serve {}, "
                       "or give up one of the two",
                       option, of_serve);
}

// What the run's own server does.
Status check_embedded(const RunSettings& settings) {
  const Options& o = settings.options;
  bool chooses_codec = o.compress != Compression::kAuto;
  auto codec = fmt::format("--tune compress={}", kCompressionNames[static_cast<size_t>(o.compress)]);
  if (o.offload && chooses_codec && o.compress != Compression::kOff)
    return Status::error(EINVAL, "{} is not for a server that executes functions; give up it or --offload", codec);
  if (settings.embedded()) return check_overflow(o);
  if (o.offload)
    return Status::error(EINVAL, "--offload is for the server of this run; start others with farside serve --offload");
  if (o.far_memory > 0) return refuse_with_far(fmt::format("--far-memory {}", format_size(o.far_memory)), "--memory");
  if (chooses_codec) return refuse_with_far(codec, "--compress");
  if (o.overflow[0] != 0) return refuse_with_far(fmt::format("--tune overflow={}", o.overflow), "--overflow");
  return {};
}

Status check_far_memory(const RunSettings& settings) {
  uint64_t machine = machine_memory().total;
  if (settings.options.far_memory <= machine) return {};
  return Status::error(EINVAL, "--far-memory {} is more than this machine has ({})",
                       format_size(settings.options.far_memory), format_size(machine));
}

Status check_replicas(const RunSettings& settings) {
  if (!settings.embedded() || settings.options.replicas == 1) return {};
  return Status::error(EINVAL, "--replicas {} needs as many servers; name them with --far", settings.options.replicas);
}

Status check_is_client(const Options& options) {
  if (!options.tls_verify_clients) return {};
  return Status::error(EINVAL, "--tls verify-clients is for farside serve; a client verifies every server");
}

Status read_token(Options* options) {
  if (options->token_file[0] == 0) return {};
  Result<std::string> token = read_token_file(options->token_file);
  options->token_file[0] = 0;  // a run in this one has the token
  return token.ok() ? copy_text(*token, options->token, "the token") : token.status();
}

// A program of the run that calls farside itself may do so in another directory.
Status make_absolute(Options* options) {
  for (PathText* path : {&options->tls_ca, &options->tls_cert, &options->tls_key}) {
    if ((*path)[0] == 0) continue;
    Status copied = copy_text(std::filesystem::absolute(*path).native(), *path, *path);
    if (!copied.ok()) return copied;
  }
  return {};
}

// Far space, its tables, the server's memory and its compressed pages take addresses. Under a limit on them, which
// natively bounds what the program may use, far space is a fifth of it.
void fit_space(Options* options) {
  constexpr uint64_t kMinSpace = 64 * kMiB, kUnit = 16 * kMiB;
  rlimit limit = {};
  bool is_default = options->space == Options().space;
  if (!is_default || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  uint64_t space = align_down(limit.rlim_cur / kSpacesInLimit, kUnit);
  if (space >= options->space || space < kMinSpace) return;
  options->space = space;
  log(LogLevel::kWarning,
      "the limit of {} on virtual memory (ulimit -v) leaves {} of addresses for far memory; raise it if more is needed",
      format_size(limit.rlim_cur), format_size(space));
}

// "auto, signal or handler" has choices, "1 to 16" and "HOST:PORT or file:PATH" have none.
std::vector<std::string> choices_of(const OptionRow& row) {
  std::vector<std::string> choices;
  for (std::string_view word : words_of(row.range)) {
    bool is_choice = std::ranges::all_of(word, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
    if (!is_choice) return {};
    choices.emplace_back(word);
  }
  return choices;
}

// A key may be typed as an option: "did you mean --tune policy=VALUE?".
void suggest_keys(Command& command, const OptionRow& row) {
  for (const OptionRow* key : keys_of(row)) {
    std::string use = fmt::format("{}{}", key->name, key->is_flag() ? "" : "=VALUE");
    command.suggest(fmt::format("--{}", key->key()), use);
    command.suggest(fmt::format("{}-{}", row.name, key->key()), use);
  }
}

}  // namespace

uint64_t RunSettings::far_memory() const {
  return options.far_memory > 0 ? options.far_memory : machine_memory().total / 2;
}

std::string RunSettings::stats_file() const {
  std::string_view stats = options.stats;
  return std::string(stats.empty() ? stats : stats.substr(kJson.size()));
}

std::string RunSettings::metrics_address() const {
  std::string_view metrics = options.metrics;
  return metrics.starts_with(kFile) ? "" : std::string(metrics);
}

std::string RunSettings::metrics_file() const {
  std::string_view metrics = options.metrics;
  return metrics.starts_with(kFile) ? std::string(metrics.substr(kFile.size())) : "";
}

void add_table_option(Command& command, GivenOptions* given, const OptionRow& row, bool has_variable) {
  std::string name(row.name), help = describe_option(row);
  if (has_variable) help += fmt::format("  [{}]", row.variable);
  auto take = [given, &row](const std::string& text) { given->push_back({&row, text}); };
  if (row.is_flag()) {
    command.add_flag(
        name, [take] { take("on"); }, help);
  } else if (row.set) {
    Option& option = command.add_option(name, take, help).value(std::string(row.value)).choices(choices_of(row));
    if (row.rare) option.hide();
  } else {
    command.add_repeated_option(name, take, help).value(std::string(row.value));
    suggest_keys(command, row);
  }
}

void add_table_options(Command& command, GivenOptions* given, const std::set<std::string_view>& without) {
  for (const OptionRow& row : option_rows()) {
    bool is_option = !row.is_key() && row.scope != Scope::kInternal && !without.contains(row.name);
    if (is_option) add_table_option(command, given, row, true);
  }
  command.add_help("--help-tune", "Print the keys of --tune and rare options, and exit", tune_help());
}

TlsSettings tls_settings(const Options& options) {
  return {{options.tls_cert, options.tls_key, options.tls_ca}, options.tls_name};
}

std::string tune_help() {
  std::string text = "Keys of --tune KEY=VALUE,... and of FARSIDE_TUNE. The defaults suit most programs.\n\n";
  for (const OptionRow* key : keys_of(*find_option("--tune"))) {
    text += fmt::format("  {:<22} {}\n", fmt::format("{}={}", key->key(), key->value), describe_option(*key));
  }
  text += "\nOptions that few runs need:\n\n";
  for (const OptionRow& row : option_rows()) {
    if (row.rare) text += fmt::format("  {:<22} {}\n", fmt::format("{} {}", row.name, row.value), describe_option(row));
  }
  return text + "\nExample:\n  farside run --tune policy=lru,evictors=2 -- sort big.txt\n";
}

Result<RunSettings> settle(const GivenOptions& given) {
  RunSettings settings;
  Options& options = settings.options;
  if (Status inherited = inherit(&options); !inherited.ok()) return inherited;
  Options outer = options;
  if (Status read = read_options(environ, given, &options); !read.ok()) return read;
  set_log_level(options.log);
  if (has_other_far_file(options, outer)) options.token[0] = 0;
  for (Status checked : {check_is_client(options), read_token(&options), make_absolute(&options),
                         check_replicas(settings), check_far_memory(settings), check_embedded(settings)}) {
    if (!checked.ok()) return checked;
  }
  fit_space(&options);
  return settings;
}

void warn_if_public(const std::string& path) {
  struct stat info = {};
  bool is_public = stat(path.c_str(), &info) == 0 && (info.st_mode & S_IROTH);
  if (is_public)
    log(LogLevel::kWarning, "every user of this machine can read the token file {0}; run chmod 600 {0}", path);
}

Result<std::string> read_token_file(const std::string& path) {
  if (std::filesystem::is_directory(path))
    return Status::error(EISDIR, "the token file {} is a directory; name a file whose first line is the secret", path);
  std::ifstream file(path);
  std::string token;
  if (!file) return Status::error(ENOENT, "cannot read the token file {}: {}", path, strerror(errno));
  warn_if_public(path);
  std::getline(file, token);
  if (!token.empty()) return token;
  return Status::error(EINVAL, "the token file {} has an empty first line; write the server's secret there", path);
}

}  // namespace farside::cli
