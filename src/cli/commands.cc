#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/log.h"

namespace farside::cli {
namespace {

// The program after "--" is kept away from the option parser, which would take apart arguments such as "[a,b]".
std::vector<std::string> take_program(std::vector<std::string>* arguments) {
  constexpr std::string_view kWithProgram[] = {"run", "trace", "plan", "track"};
  if (arguments->empty() || std::ranges::find(kWithProgram, arguments->front()) == std::end(kWithProgram)) return {};
  auto dashes = std::find(arguments->begin(), arguments->end(), "--");
  if (dashes == arguments->end()) return {};
  std::vector<std::string> program(dashes + 1, arguments->end());
  arguments->erase(dashes, arguments->end());
  return program;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  auto given = app.get_subcommands();
  std::string command = given.empty() ? "farside" : "farside " + given.front()->get_name();
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  log(LogLevel::kError, "{}; see {} --help", text, command);
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

int run_farside(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<std::string> program = take_program(&arguments);
  CLI::App app("Farside runs unmodified programs with most of their memory on another machine.", "farside");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  farside doctor\n  farside run --local 25% -- sort big.txt\n"
      "  farside serve --memory 4G --listen 127.0.0.1:7170");
  add_run_command(app, program);
  add_trace_command(app, program);
  add_plan_command(app, program);
  add_track_command(app, program);
  add_ctl_command(app);
  add_serve_command(app);
  add_pool_command(app);
  add_doctor_command(app);
  add_bench_command(app);
  add_version_command(app);
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

}  // namespace farside::cli
