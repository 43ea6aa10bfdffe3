// What `farside run` was asked to do. The command line is turned into FARSIDE_* variables first, over those that are
// there already; then all are read and checked in one place, by the table of abi/options.h.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "abi/options.h"
#include "command/command.h"

namespace farside::cli {

// Variable to value, for the options that were given as flags.
using GivenOptions = std::map<std::string, std::string>;

struct RunSettings {
  Options options;          // what the program's processes will read
  uint64_t far_memory = 0;  // bytes that an embedded server lends
  std::string stats_file;   // "" where no statistics were asked for
  bool embedded() const { return options.far_address[0] == 0; }
};

// Adds every option of the table that has a command line form, but for the flags that the command has no use for.
// Values arrive in `given` when the line is parsed.
void add_table_options(Command& command, GivenOptions* given, const std::set<std::string_view>& without = {});

// Moves the given options into this process's environment and reads it. The token ends up in settings.options.token
// wherever it came from.
Result<RunSettings> settle(const GivenOptions& given);

// First line of a file that holds a secret.
Result<std::string> read_token_file(const std::string& path);

// "json:FILE" -> FILE.
Result<std::string> parse_stats(const std::string& value);

}  // namespace farside::cli
