// The settings of `farside run`. Options of the command line become FARSIDE_* variables first and replace those that
// are set already; then all variables are read and checked in one place, by the table of abi/options.h.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "abi/options.h"
#include "command/command.h"
#include "launch/private_relay.h"
#include "ucx/helper.h"

namespace farside::cli {

// Variable to value, for the options that were given as flags.
using GivenOptions = std::map<std::string, std::string>;

struct RunSettings {
  Options options;          // read by the program's processes
  uint64_t far_memory = 0;  // bytes that an embedded server lends
  bool offload = false;     // an embedded server executes functions
  std::string stats_file;   // "" where no statistics were requested
  TlsSettings tls;
  std::string ucx_transports;
  std::string metrics_address, metrics_file;  // "" where no metrics were requested
  bool embedded() const { return options.far_address[0] == 0; }
  bool in_file() const { return std::string_view(options.far_address).starts_with("file:"); }
};

// Adds every option of the table that has a command line form, except the flags in `without`. Parsing the command line
// stores values in `given`.
void add_table_options(Command& command, GivenOptions* given, const std::set<std::string_view>& without = {});

// Moves the given options into this process's environment and reads it. settings.options.token
// holds the token, whether it was given directly or in a file.
Result<RunSettings> settle(const GivenOptions& given);

// Warns if every user can read a file that holds secrets.
void warn_if_public(const std::string& path);

// First line of a file that holds a secret.
Result<std::string> read_token_file(const std::string& path);

// "json:FILE" -> FILE.
Result<std::string> parse_stats(const std::string& value);

}  // namespace farside::cli
