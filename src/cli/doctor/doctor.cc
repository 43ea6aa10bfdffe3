// farside doctor: shows what diagnose() found, as a table or as JSON.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "abi/options.h"
#include "cli/commands.h"
#include "cli/doctor/checks.h"

namespace farside::cli {
namespace {

void print_json(const Diagnosis& diagnosis) {
  nlohmann::json result = {{"usable", diagnosis.usable()},
                           {"fault_mode", {{"auto", diagnosis.choice.mode}, {"reason", diagnosis.choice.reason}}},
                           {"checks", nlohmann::json::array()}};
  for (const Finding& finding : diagnosis.findings) {
    result["checks"].push_back({{"name", finding.name},
                                {"health", health_name(finding.health)},
                                {"found", finding.found},
                                {"advice", finding.advice}});
  }
  fmt::print("{}\n", result.dump(2));
}

void print_table(const Diagnosis& diagnosis) {
  for (const Finding& finding : diagnosis.findings) {
    fmt::print("{:<8} {:<18} {}\n", health_name(finding.health), finding.name, finding.found);
    if (!finding.advice.empty()) fmt::print("{:<27} -> {}\n", "", finding.advice);
  }
  fmt::print("\n--fault=auto selects: {} ({})\n", diagnosis.choice.mode, diagnosis.choice.reason);
  fmt::print("{}\n", diagnosis.usable() ? "Farside can be used here."
                                        : "Farside cannot be used here yet: fix what is missing.");
}

int diagnose_and_print(bool json) {
  Options options;
  Status read = read_options(environ, {}, &options);
  if (!read.ok()) return fail(read, kExitUsage);
  Diagnosis diagnosis = diagnose(options);
  json ? print_json(diagnosis) : print_table(diagnosis);
  return diagnosis.usable() ? 0 : kExitFailure;
}

}  // namespace

void add_doctor_command(Command& parent) {
  Command& command =
      parent.add_command("doctor", "Check what this machine supports, what is missing and how to fix it");
  auto json = std::make_shared<bool>(false);
  command.add_flag("--json", json.get(), "print JSON");
  command.set_footer(
      "Exit status: 0 if Farside can be used here, 1 if not.\n\nExamples:\n  farside doctor\n"
      "  farside doctor --json | python3 -m json.tool");
  command.set_action([json] { return diagnose_and_print(*json); });
}

}  // namespace farside::cli
