#include "tools/top/top.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/os.h"
#include "command/command.h"
#include "command/describe.h"
#include "tools/top/screen.h"

namespace farside::top {
namespace {

constexpr uint64_t kReplyNs = 250'000'000;  // within which processes reply

struct Arguments {
  View view;
  double interval = 1;
  bool once = false, json = false;
};

void wait(double seconds) { os::nanosleep_ns(static_cast<uint64_t>(seconds * 1e9)); }

void print(const std::vector<Row>& rows, bool as_json) {
  if (!as_json) return fmt::print("{}\n{}", summary_line(rows), to_text(rows));
  for (const Row& row : rows) fmt::print("{}\n", to_json(row).dump());
}

// Two looks are the first that give rates.
int print_without_terminal(const Arguments& arguments) {
  Sampler sampler;
  sampler.look();
  os::nanosleep_ns(kReplyNs);
  do {
    sampler.look();
    wait(arguments.interval);
    if (!arguments.once) continue;
    sampler.look();
  } while ((print(arrange(sampler.rows(), arguments.view), arguments.json), fflush(stdout) == 0) && !arguments.once);
  return ferror(stdout) ? fail(Status::error(EIO, "standard output cannot be written")) : 0;
}

int run(const Arguments& arguments) {
  if (arguments.once || arguments.json) return print_without_terminal(arguments);
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    return fail(Status::error(ENOTTY, "a live table needs a terminal; use --once or --json"));
  Status shown = show_live(arguments.view, arguments.interval);
  return shown.ok() ? 0 : fail(shown);
}

}  // namespace

int run_top(int argc, const char* const* argv) {
  Command command("farside top", "A live table of the programs that run under Farside on this machine");
  Arguments arguments;
  command.add_option("--sort", &arguments.view.sort, "the column to sort by").one_of(sort_keys()).show_default();
  command
      .add_option("--filter", &arguments.view.filter,
                  "show programs whose name contains this, or the process with this ID")
      .value("TEXT");
  command.add_flag("--reverse", &arguments.view.reversed, "reverse the order");
  command.add_option("--interval", &arguments.interval, "seconds between two looks")
      .value("SECONDS")
      .range(0.1, 3600.0)
      .show_default();
  command.add_flag("--once", &arguments.once, "print the table once, after one interval; needs no terminal");
  command.add_flag("--json", &arguments.json, "print a line of JSON for each process at each look; needs no terminal");
  command.set_footer(
      "Keys: q quits, < and > choose the column to sort by, r reverses, / filters, arrows scroll.\n"
      "Pressure is the part of the last 10 s that was lost in faults.\n\n"
      "Examples:\n  farside top\n  farside top --once --sort far\n  farside top --json --filter redis");
  command.set_action([&] { return run(arguments); });
  return run_tool(command, {argv + 1, argv + argc});
}

}  // namespace farside::top
