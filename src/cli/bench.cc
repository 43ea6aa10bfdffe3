// farside bench: executes farside-bench, which is a separate program because benchmarks link the pager, objects and a
// simulator.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands.h"
#include "launch/installation.h"

namespace farside::cli {
namespace {

int bench(const std::vector<std::string>& arguments) {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return fail(installation.status());
  std::string program = installation->bench();
  std::vector<char*> words = {program.data()};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  return fail(Status::error(errno, "cannot execute {}: {}; install Farside's benchmarks", program, strerror(errno)));
}

}  // namespace

void add_bench_command(Command& parent, std::vector<std::string> arguments) {
  Command& command = parent.add_command("bench", "Compare far memory with the kernel's swap on this machine");
  command.set_action([arguments = std::move(arguments)] { return bench(arguments); });
}

}  // namespace farside::cli
