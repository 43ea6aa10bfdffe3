#include <fmt/format.h>

#include "cli/commands.h"

namespace farside::cli {

void add_version_command(CLI::App& app) {
  app.set_version_flag("--version", "farside " FARSIDE_VERSION_TEXT);
  set_action(app.add_subcommand("version", "Print the version"), [] {
    fmt::print("farside {}\n", FARSIDE_VERSION_TEXT);
    return 0;
  });
}

}  // namespace farside::cli
