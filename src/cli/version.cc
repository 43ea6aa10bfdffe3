#include <fmt/format.h>

#include "cli/commands.h"

namespace farside::cli {

void add_version_command(Command& parent) {
  parent.add_version_flag("--version", "farside " FARSIDE_VERSION_TEXT);
  parent.add_command("version", "Print the version").set_action([] {
    fmt::print("farside {}\n", FARSIDE_VERSION_TEXT);
    return 0;
  });
}

}  // namespace farside::cli
