// farside trace: runs a program like farside run, with the recorder on, and reports where its faults occur.
#include "tools/trace/trace.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "cli/run.h"
#include "cli/tools.h"
#include "command/describe.h"
#include "launch/child.h"
#include "report/files.h"
#include "tools/trace/outputs.h"
#include "tools/trace/recording.h"

namespace farside::trace {
namespace {

constexpr const char* kHelp =
    "The options are those of farside run, but half of the heap is near if --local is not given. Build the program "
    "with -g,\nso that lines can be named; it may be optimized.\n"
    "Writes trace.json, folded.txt and flame.svg (for a browser) into --out, and a table to standard error.\n"
    "docs/guide/trace.md explains them.\n\n"
    "Examples:\n"
    "  farside trace --local 10% -- ./job data.csv\n"
    "  farside trace --local 256M --out sort-trace --coverage 99 -- sort big.txt";

// An automatic size would avoid the faults that are to be seen.
constexpr const char* kLocal = "50%";

struct TraceArguments {
  cli::GivenOptions options;
  std::string out = "farside-trace";
  double coverage = Analysis::kTenPlaces;
};

// The options as they were given, with a size if neither they nor the environment have one.
cli::GivenOptions with_size(cli::GivenOptions given) {
  if (!getenv("FARSIDE_LOCAL")) given.insert(given.begin(), {find_option("--local"), kLocal});
  return given;
}

Status refuse_handler_mode(const cli::GivenOptions& given) {
  Options options;
  Status read = read_options(environ, given, &options);
  if (!read.ok() || options.fault != FaultMode::kHandler) return read;
  return Status::error(
      EINVAL, "--fault=handler cannot be traced: a handler thread does not see the call stack; use --fault=signal");
}

// The file to which the processes write their recordings. The path is absolute because the program may change its
// directory.
class RawFile {
 public:
  explicit RawFile(const std::string& directory)
      : path_((std::filesystem::absolute(directory) / fmt::format("recorded.{}", getpid())).string()) {}
  ~RawFile() { unlink(path_.c_str()); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Status write_results(const Analysis& analysis, const TraceArguments& arguments,
                     const std::vector<std::string>& program) {
  std::string json =
      to_json(analysis, program, arguments.coverage).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  return write_files(arguments.out,
                     {{"trace.json", json + "\n"},
                      {"folded.txt", to_folded(analysis)},
                      {"flame.svg", to_flame_graph(analysis, fmt::format("{}", fmt::join(program, " ")))}});
}

// What takes a second or more is announced.
void announce(const Recording& recording) {
  constexpr size_t kMany = 2000;
  size_t stacks = 0;
  for (const Process& process : recording.processes) stacks += process.stacks.size();
  if (stacks >= kMany) fmt::print(stderr, "farside: the program has ended; {} call stacks are unwound\n", stacks);
}

Status report(const RawFile& raw, const TraceArguments& arguments, const std::vector<std::string>& program) {
  Result<Recording> recording = read_recording(raw.path());
  if (!recording.ok()) return recording.status();
  if (recording->cut_short) {
    log(LogLevel::kWarning, "the trace of a process is incomplete and is omitted: was the disk full?");
  }
  announce(*recording);
  Result<Analysis> analysis = analyze(*recording);
  if (!analysis.ok()) return analysis.status();
  Status written = write_results(*analysis, arguments, program);
  if (written.ok()) fputs(to_table(*analysis, arguments.coverage, arguments.out).c_str(), stderr);
  return written;
}

// The program's wait status; or, with *failed set, the exit status of a failure that has been reported.
int trace_program(const TraceArguments& arguments, const std::vector<std::string>& program, bool* failed) {
  *failed = true;
  Status possible = refuse_handler_mode(arguments.options);
  if (!possible.ok()) return fail(possible, kExitUsage);
  Status made = make_directory(arguments.out);
  if (!made.ok()) return fail(made);
  RawFile raw(arguments.out);
  setenv("FARSIDE_TRACE", raw.path().c_str(), 1);
  int exit_status = 0;
  Result<int> wait_status = cli::run_program("farside trace", with_size(arguments.options), program, &exit_status);
  if (!wait_status.ok()) return fail(wait_status.status(), exit_status);
  Status reported = report(raw, arguments, program);
  if (!reported.ok()) return fail(reported);
  *failed = false;
  return *wait_status;
}

}  // namespace

int run_trace(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<std::string> program = take_program(&words);
  Command command("farside trace", cli::tool_help("trace"));
  auto arguments = std::make_shared<TraceArguments>();
  cli::add_table_options(command, &arguments->options);
  command.expect_program();
  command.add_option("--out", &arguments->out, "directory for the results (default: farside-trace)").value("DIR");
  command
      .add_option("--coverage", &arguments->coverage,
                  "percent of the faults that the table explains (default: 95, in ten places at most)")
      .value("PERCENT")
      .range(1.0, 100.0);
  command.set_footer(kHelp);
  command.set_action([arguments, program = std::move(program)] {
    bool failed = false;
    int status = trace_program(*arguments, program, &failed);
    return failed ? status : end_like_child(status);
  });
  return run_tool(command, std::move(words));
}

}  // namespace farside::trace
