// The settings of `farside run`: the options of the table (abi/options.h), read from the command line, the environment
// and the run in which this one is started, and what the launcher makes of them.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "abi/options.h"
#include "command/command.h"
#include "launch/private_relay.h"

namespace farside::cli {

using GivenOptions = std::vector<GivenOption>;

struct RunSettings {
  Options options;
  bool embedded() const { return options.far_address[0] == 0; }
  bool in_file() const { return std::string_view(options.far_address).starts_with("file:"); }
  // The server of the run lends this much.
  uint64_t far_memory() const;
  // FILE of --stats json:FILE; "" where no statistics were requested.
  std::string stats_file() const;
  // HOST:PORT or PATH of --metrics; "" where it is the other, or none.
  std::string metrics_address() const;
  std::string metrics_file() const;
};

// Adds every option of the table that is no key of another one, except those in `without`. Parsing the command line
// appends to `given`.
void add_table_options(Command& command, GivenOptions* given, const std::set<std::string_view>& without = {});

// Adds one of them; its help names the variable where the command reads it.
void add_table_option(Command& command, GivenOptions* given, const OptionRow& row, bool has_variable);
TlsSettings tls_settings(const Options& options);

// The keys of --tune with their ranges and defaults.
std::string tune_help();

// Reads all options and checks what more than one of them decides. settings.options.token holds the token, whether it
// is in a file or this run is started in another one.
Result<RunSettings> settle(const GivenOptions& given);

// Warns if every user can read a file that holds secrets.
void warn_if_public(const std::string& path);

// First line of a file that holds a secret.
Result<std::string> read_token_file(const std::string& path);

}  // namespace farside::cli
