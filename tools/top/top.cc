#include "tools/top/top.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "base/os.h"
#include "cli/metrics_http.h"
#include "command/command.h"
#include "command/describe.h"
#include "tools/top/screen.h"

namespace farside::top {
namespace {

constexpr uint64_t kReplyNs = 250'000'000;  // within which processes reply

struct Arguments {
  View view;
  std::string servers;
  double interval = 1;
  bool once = false, json = false;
};

void wait(double seconds) { os::nanosleep_ns(static_cast<uint64_t>(seconds * 1e9)); }

void print(const std::vector<Row>& rows, bool as_json) {
  if (!as_json) return fmt::print("{}\n{}", summary_line(rows), to_text(rows));
  for (const Row& row : rows) fmt::print("{}\n", to_json(row).dump());
}

int end_of_output() { return ferror(stdout) ? fail(Status::error(EIO, "standard output cannot be written")) : 0; }

// Two looks are the first that give rates.
int print_servers(const Arguments& arguments) {
  ServerSampler sampler(arguments.servers);
  sampler.look();
  do {
    wait(arguments.interval);
    sampler.look();
    if (!arguments.json) fmt::print("{}", to_text(sampler.rows()));
    for (size_t i = 0; arguments.json && i < sampler.rows().size(); i++)
      fmt::print("{}\n", to_json(sampler.rows()[i]).dump());
  } while (fflush(stdout) == 0 && !arguments.once);
  return end_of_output();
}

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
  return end_of_output();
}

// A mistake in an address is reported, a server that does not reply yet is not.
Status check_servers(const std::string& addresses) {
  std::istringstream words(addresses);
  for (std::string address; std::getline(words, address, ',');) {
    auto place = cli::parse_host_port("--servers", address);
    if (!place.ok()) return place.status();
  }
  return {};
}

int run(const Arguments& arguments) {
  if (Status possible = check_servers(arguments.servers); !possible.ok()) return fail(possible, kExitUsage);
  if (arguments.once || arguments.json)
    return arguments.servers.empty() ? print_without_terminal(arguments) : print_servers(arguments);
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    return fail(Status::error(ENOTTY, "a live table needs a terminal; use --once or --json"));
  Status shown = show_live(arguments.view, arguments.servers, arguments.interval);
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
  command
      .add_option("--servers", &arguments.servers,
                  "show memory servers and pools: the addresses that farside serve --metrics has")
      .value("HOST:PORT,...");
  command.add_flag("--reverse", &arguments.view.reversed, "reverse the order");
  command.add_option("--interval", &arguments.interval, "seconds between two looks")
      .value("SECONDS")
      .range(0.1, 3600.0)
      .show_default();
  command.add_flag("--once", &arguments.once, "print the table once, after one interval; needs no terminal");
  command.add_flag("--json", &arguments.json, "print a line of JSON for each process at each look; needs no terminal");
  command.set_footer(
      "Keys: q quits, s switches between programs and servers, < and > choose the column to sort by, r reverses, / "
      "filters, arrows scroll.\n"
      "Pressure is the part of the last 10 s that was lost in faults.\n\n"
      "Examples:\n  farside top\n  farside top --once --sort far\n  farside top --json --filter redis\n"
      "  farside top --servers 127.0.0.1:9170");
  command.set_action([&] { return run(arguments); });
  return run_tool(command, {argv + 1, argv + argc});
}

}  // namespace farside::top
