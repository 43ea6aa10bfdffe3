// farside trace, plan, track, top and bench.
#include "cli/tools.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace farside::cli {
namespace {

struct Tool {
  std::string_view name;
  const char* help;
};
constexpr Tool kTools[] = {
    {"trace", "Run a program and tell which lines fault: farside trace [OPTIONS] -- PROGRAM ARGS..."},
    {"plan", "Measure how much near memory a program needs: farside plan [OPTIONS] -- PROGRAM ARGS..."},
    {"track", "Tell which memory a program changes: farside track [OPTIONS] -p PID, or -- PROGRAM ARGS..."},
    {"top", "Show the programs that run under Farside in a live table"},
    {"bench", "Compare far memory with the kernel's swap on this machine"}};

const Tool* find_tool(std::string_view name) { return std::ranges::find(kTools, name, &Tool::name); }

int find_and_execute(const std::string& name, const std::vector<std::string>& arguments) {
  Result<Installation> installation = find_installation();
  return installation.ok() ? execute_tool(*installation, name, arguments) : fail(installation.status());
}

}  // namespace

bool is_tool(std::string_view name) { return find_tool(name) != std::end(kTools); }

std::string tool_help(std::string_view name) { return find_tool(name)->help; }

int execute_tool(const Installation& installation, const std::string& name, const std::vector<std::string>& arguments) {
  std::string program = installation.tool(name);
  std::vector<char*> words = {program.data()};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  return fail(Status::error(errno, "cannot execute {}: {}; install Farside again, or in a build folder, run make",
                            program, strerror(errno)));
}

void add_tool_commands(Command& parent, const std::vector<std::string>& arguments) {
  for (const Tool& tool : kTools) {
    std::string name(tool.name);
    parent.add_command(name, tool.help).set_action([name, arguments] { return find_and_execute(name, arguments); });
  }
}

}  // namespace farside::cli
