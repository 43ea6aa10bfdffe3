#include "cli/run_settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "abi/token_fd.h"
#include "base/log.h"
#include "base/size.h"
#include "report/machine.h"

namespace farside::cli {
namespace {

// The options without a value.
constexpr std::string_view kBareFlags[] = {"--quiet", "--require-tls", "--offload"};

std::string variable_text(const char* variable) {
  const char* value = getenv(variable);
  return value ? value : "";
}

// Errors name variables. If the option was given as a flag, names the flag instead.
Status in_terms_of_flags(const Status& status, const GivenOptions& given) {
  std::string_view text = status.text();
  for (const OptionName& name : option_names()) {
    bool concerns =
        text.starts_with(name.variable) && given.contains(std::string(name.variable)) &&
        (text.substr(name.variable.size()).starts_with('=') || text.substr(name.variable.size()).starts_with(' '));
    if (concerns) return Status::error(status.code(), "{}{}", name.flag, text.substr(name.variable.size()));
  }
  return status;
}

Result<uint64_t> far_memory_size() {
  std::string value = variable_text("FARSIDE_FAR_MEMORY");
  uint64_t machine = machine_memory().total;
  if (value.empty()) return machine / 2;
  Result<uint64_t> bytes = parse_size(value);
  if (!bytes.ok() || *bytes <= machine) return bytes;
  return Status::error(EINVAL, "--far-memory {} is more than this machine has ({})", value, format_size(machine));
}

Status settle_offload(RunSettings* settings) {
  std::string value = variable_text("FARSIDE_OFFLOAD");
  settings->offload = value == "on" || value == "1";
  if (!settings->offload && !value.empty() && value != "off" && value != "0")
    return Status::error(EINVAL, "FARSIDE_OFFLOAD={} is not known; use on or off", value);
  if (!settings->offload || settings->embedded()) return {};
  return Status::error(EINVAL, "--offload is for the server of this run; start others with farside serve --offload");
}

// A run that is started by another one, or by a benchmark, uses the same servers or the same far file.
Status inherit_token(Options* options) {
  if (options->token_fd < 0) return {};
  int r = read_token_fd(options->token_fd, options->token, sizeof options->token);
  if (r == 0) return {};
  return Status::error(-r,
                       "FARSIDE_TOKEN_FD={}: this descriptor has no token; unset the variable, or give --token-file",
                       options->token_fd);
}

// The descriptors of the run in which this one is started belong to another far file.
void forget_far_file() {
  if (variable_text("FARSIDE_FAR").starts_with("file:")) unsetenv("FARSIDE_TOKEN_FD");
}

Status settle_token(Options* options) {
  std::string file = variable_text("FARSIDE_TOKEN_FILE");
  if (file.empty()) return inherit_token(options);
  // A program of the run that calls farside itself may do so in another directory.
  setenv("FARSIDE_TOKEN_FILE", std::filesystem::absolute(file).c_str(), 1);
  Result<std::string> token = read_token_file(file);
  return token.ok() ? set_token(options, *token) : token.status();
}

// The words of "a,b".
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), words.back().size() + 1));
  }
  return words;
}

}  // namespace

void add_table_options(Command& command, GivenOptions* given, const std::set<std::string_view>& without) {
  for (const OptionName& name : option_names()) {
    if (name.internal || without.contains(name.flag)) continue;
    std::string variable(name.variable), flag(name.flag), help = fmt::format("{}  [{}]", name.help, name.variable);
    auto keep = [given, variable](const std::string& value) { (*given)[variable] = value; };
    if (std::find(std::begin(kBareFlags), std::end(kBareFlags), flag) != std::end(kBareFlags))
      command.add_flag(
          flag, [keep] { keep("on"); }, help);
    else command.add_option(flag, keep, help).value("VALUE").choices(split(name.choices));
  }
}

Result<RunSettings> settle(const GivenOptions& given) {
  for (const auto& [variable, value] : given) setenv(variable.c_str(), value.c_str(), 1);
  RunSettings settings;
  if (given.contains("FARSIDE_FAR")) forget_far_file();
  Status read = options_from_environment(environ, &settings.options);
  if (!read.ok()) return in_terms_of_flags(read, given);
  Status token = settle_token(&settings.options);
  if (!token.ok()) return token;
  if (settings.embedded() && settings.options.replicas > 1)
    return Status::error(EINVAL, "--replicas {} needs as many servers; name them with --far",
                         settings.options.replicas);
  Result<uint64_t> far_memory = far_memory_size();
  if (!far_memory.ok()) return far_memory.status();
  settings.far_memory = *far_memory;
  if (Status s = settle_offload(&settings); !s.ok()) return s;
  Result<std::string> stats = parse_stats(variable_text("FARSIDE_STATS"));
  if (!stats.ok()) return stats.status();
  settings.stats_file = *stats;
  settings.tls = {
      {variable_text("FARSIDE_TLS_CERT"), variable_text("FARSIDE_TLS_KEY"), variable_text("FARSIDE_TLS_CA")},
      variable_text("FARSIDE_TLS_NAME")};
  settings.ucx_transports = variable_text("FARSIDE_UCX");
  if (settings.ucx_transports.empty()) settings.ucx_transports = ucx::kDefaultTransports;
  settings.metrics_address = variable_text("FARSIDE_METRICS");
  settings.metrics_file = variable_text("FARSIDE_METRICS_FILE");
  return settings;
}

void warn_if_public(const std::string& path) {
  struct stat info = {};
  bool is_public = stat(path.c_str(), &info) == 0 && (info.st_mode & S_IROTH);
  if (is_public)
    log(LogLevel::kWarning, "every user of this machine can read the token file {0}; run chmod 600 {0}", path);
}

Result<std::string> read_token_file(const std::string& path) {
  std::ifstream file(path);
  std::string token;
  if (!file) return Status::error(ENOENT, "cannot read the token file {}: {}", path, strerror(errno));
  warn_if_public(path);
  std::getline(file, token);
  if (!token.empty()) return token;
  return Status::error(EINVAL, "the token file {} has an empty first line; write the server's secret there", path);
}

Result<std::string> parse_stats(const std::string& value) {
  if (value.empty()) return value;
  constexpr std::string_view kForm = "json:";
  if (value.starts_with(kForm) && value.size() > kForm.size()) return value.substr(kForm.size());
  return Status::error(EINVAL, "--stats={} is not known; use json:FILE", value);
}

}  // namespace farside::cli
