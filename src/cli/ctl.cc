// farside ctl: shows the state of processes under Farside, and changes their near memory while they run.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "abi/option_values.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "cli/commands.h"
#include "cli/statistics/report_values.h"
#include "launch/control_client.h"

namespace farside::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kPollNs = 20'000'000;

struct CtlArguments {
  pid_t pid = 0;
  std::string local;
  double seconds = 60;
  bool json = false;
};

std::string name_of(const json& report) { return fmt::format("{} {}", count(report, "pid"), text(report, "program")); }

std::string describe_copies(const json& report) {
  uint64_t degraded = count(report, "degraded_slabs");
  if (degraded == 0) return "";
  std::string end = report.contains("repair_seconds_left")
                        ? fmt::format("complete in about {:.0f} s", std::ceil(number(report, "repair_seconds_left")))
                        : "no copy is being made, which needs another server with free memory";
  return fmt::format("; {} slabs of 16 MiB have fewer copies than --replicas on servers that stay, {}", degraded, end);
}

std::string describe(const json& report) {
  uint64_t heap = count(report, "heap_bytes"), near = count(report, "near_bytes");
  return fmt::format("{}: near {} of {} allowed, far {}; {} faults, {} evictions; {} mode, {}{}", name_of(report),
                     format_size(near), format_size(count(report, "local_bytes")),
                     format_size(heap > near ? heap - near : 0), count(report, "faults"), count(report, "evictions"),
                     text(report, "mode"), text(report, "transport"), describe_copies(report));
}

// It takes no requests yet.
bool is_small(const Result<json>& reply) { return reply.status().code() == EAGAIN; }

// Changes the limit and waits until the process complies. A higher limit takes effect at once; a lower one only after
// the pages beyond it are evicted.
Result<json> resize(ControlledProcess& process, Result<json> before, const SizeOrShare& local, double seconds) {
  if (is_small(before)) process.set_local_later(local);
  if (!before.ok()) return before;
  uint64_t start = now_ns();
  auto now = process.set_local(local);
  while (now.ok() && count(*now, "near_bytes") > count(*now, "local_bytes")) {
    if (static_cast<double>(now_ns() - start) > seconds * 1e9) {
      return Status::error(ETIMEDOUT, "{}: {} are still near after {} s, {} are allowed; eviction continues",
                           name_of(*now), format_size(count(*now, "near_bytes")), seconds,
                           format_size(count(*now, "local_bytes")));
    }
    os::nanosleep_ns(kPollNs);
    now = process.ask();
  }
  if (!now.ok()) return now;
  (*now)["local_bytes_before"] = (*before)["local_bytes"];
  (*now)["resize_seconds"] = static_cast<double>(now_ns() - start) / 1e9;
  return now;
}

// A share of a small heap may be less than a program must have.
bool is_floor(const SizeOrShare& local, uint64_t limit) {
  return local.is_share() && limit == *parse_size(limits_of(find_option("--local")->range).min);
}

std::string describe_resized(const json& report, const SizeOrShare& local) {
  uint64_t limit = count(report, "local_bytes");
  if (local.is_automatic())
    return fmt::format("{}: near memory sizes itself from now on; {} near now", name_of(report),
                       format_size(count(report, "near_bytes")));
  return fmt::format("{}: near memory limited to {}{} instead of {}; done in {:.2f} s", name_of(report),
                     format_size(limit), is_floor(local, limit) ? ", the minimum," : "",
                     format_size(count(report, "local_bytes_before")), number(report, "resize_seconds"));
}

using Processes = std::vector<std::unique_ptr<ControlledProcess>>;

std::vector<Result<json>> resize_all(const Processes& processes, const SizeOrShare& local, double seconds) {
  std::vector<Result<json>> reports = ControlledProcess::ask_all(processes);
  for (size_t i = 0; i < processes.size(); i++)
    reports[i] = resize(*processes[i], std::move(reports[i]), local, seconds);
  return reports;
}

struct Answers {
  json reports = json::array();
  unsigned small = 0;
  std::vector<Status> silent;  // why the others did not reply
};

// Short-lived processes end while others answer: only the end of the one that was named is an error. A child of vfork
// shares its parent's page.
Answers answers_of(const Processes& processes, std::vector<Result<json>> replies, const CtlArguments& arguments) {
  Answers answers;
  std::set<uint64_t> seen;
  for (size_t i = 0; i < processes.size(); i++) {
    Result<json>& reply = replies[i];
    if (reply.ok() && seen.insert(count(*reply, "pid")).second) answers.reports.push_back(std::move(*reply));
    int error = reply.ok() ? 0 : reply.status().code();
    bool is_named = processes[i]->pid() == arguments.pid;
    if (is_small(reply) && (!is_named || !arguments.local.empty())) answers.small++;
    else if (error != 0 && (error != ESRCH || is_named)) answers.silent.push_back(reply.status());
  }
  return answers;
}

void print(const Answers& answers, const CtlArguments& arguments, const SizeOrShare& local) {
  if (arguments.json) return fmt::print("{}\n", answers.reports.dump(2));
  for (const json& report : answers.reports)
    fmt::print("{}\n", local == SizeOrShare{} ? describe(report) : describe_resized(report, local));
  if (answers.small > 0) {
    fmt::print("processes with little far memory so far, all of it near: {}{}\n", answers.small,
               local == SizeOrShare{} ? "" : " (they have the new limit when they need one)");
  } else if (answers.reports.empty() && answers.silent.empty()) {
    fmt::print("none of your processes runs under Farside\n");
  }
}

// A list of all processes is complete without those that do not reply, as a stopped one; they are named.
int report_silent(const std::vector<Status>& silent, bool lists_all) {
  for (const Status& why : silent) log(lists_all ? LogLevel::kWarning : LogLevel::kError, "{}", why.text());
  return silent.empty() || lists_all ? 0 : kExitFailure;
}

int control(const CtlArguments& arguments) {
  Options options;
  bool changes = !arguments.local.empty();
  Status read = changes ? set_option(&options, "--local", arguments.local) : Status();
  if (!read.ok()) return fail(read, kExitUsage);
  SizeOrShare local = changes ? options.local : SizeOrShare{};
  if (changes && arguments.pid == 0)
    return fail(Status::error(EINVAL, "--local needs a process: give the PID of the program or its launcher"),
                kExitUsage);
  if (changes && !ControlledProcess::find(arguments.pid)) RunLimit::set(arguments.pid, local);
  Processes processes = ControlledProcess::find_all(arguments.pid);
  if (processes.empty() && arguments.pid != 0) return fail(ControlledProcess::not_found(arguments.pid));
  auto replies = changes ? resize_all(processes, local, arguments.seconds) : ControlledProcess::ask_all(processes);
  Answers answers = answers_of(processes, std::move(replies), arguments);
  print(answers, arguments, local);
  return report_silent(answers.silent, arguments.pid == 0);
}

}  // namespace

void add_ctl_command(Command& parent) {
  Command& command = parent.add_command("ctl", "Show running programs, and change their near memory");
  auto arguments = std::make_shared<CtlArguments>();
  command.add_option("pid", &arguments->pid, "a process, or the launcher or shell that started it; none: all of yours")
      .value("PID")
      .positive();
  command
      .add_option("--local", &arguments->local,
                  "near memory from now on: auto, a size (2G), or a share of its heap's largest size (25%)")
      .value("VALUE");
  command.add_option("--wait", &arguments->seconds, "seconds to wait until the pages beyond it are evicted")
      .value("S")
      .non_negative()
      .show_default();
  command.add_flag("--json", &arguments->json, "print JSON: the statistics of --stats for each process");
  command.set_footer(
      "The program keeps running meanwhile. PID of a launcher: all processes of its run, and those that start\n"
      "later. PID of one process: its children that exist already keep their limits.\n\n"
      "Examples:\n  farside ctl\n  farside ctl 4711\n  farside ctl 4711 --local 2G\n  farside ctl $! --local 50% "
      "--json");
  command.set_action([arguments] { return control(*arguments); });
}

}  // namespace farside::cli
