#include "command/command.h"

#include <algorithm>

#include "base/log.h"

namespace farside {
namespace {

// "farside bench paging": the program and the subcommands that were given.
std::string given_command(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  log(LogLevel::kError, "{}; see {} --help", text, given_command(app));
  return kExitUsage;
}

}  // namespace

void set_action(CLI::App* command, std::function<int()> action) {
  command->callback([action = std::move(action)] { throw CLI::RuntimeError(action()); });
}

int fail(const Status& status, int exit_status) {
  log(LogLevel::kError, "{}", status.text());
  return exit_status;
}

int run_command(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::RuntimeError& done) {
    return done.get_exit_code();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return 0;
}

}  // namespace farside
