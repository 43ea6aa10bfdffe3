// farside run: starts a program with the preload library and, where no server was named, an embedded memory server.
#include "cli/run.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "abi/run_block.h"
#include "abi/static_tls.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/run_metrics.h"
#include "cli/run_settings.h"
#include "cli/statistics/run_report.h"
#include "cli/statistics/run_summary.h"
#include "cli/statistics/run_watch.h"
#include "cli/statistics/timeline.h"
#include "launch/child.h"
#include "launch/embedded_server.h"
#include "launch/installation.h"
#include "launch/machine_check.h"
#include "launch/preload.h"
#include "launch/private_relay.h"
#include "launch/program_check.h"
#include "launch/ucx_relay.h"
#include "remote/connect.h"
#include "remote/far_file.h"
#include "report/files.h"

namespace farside::cli {
namespace {

constexpr int kDisconnectMs = 300;  // within which the server notices that a process ended
constexpr int kPollMs = 5;

// Message passing between processes by process_vm_readv, which cannot read far pages of another process (EFAULT):
// OpenMPI 4, OpenMPI 5 and UCX copy through shared memory instead, unless the user has chosen.
constexpr std::pair<const char*, const char*> kWithoutDirectCopies[] = {
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}, {"OMPI_MCA_smsc", "^cma"}, {"UCX_TLS", "^cma"}};

constexpr const char* kHelp =
    "Sizes: a number and K, M, G or T, powers of 1024, as in 256M or 1.5G. --local also takes a share, as in 25%: of "
    "the\n"
    "largest size that the program's heap has had so far, so the budget grows with the heap.\n"
    "Every option is also read from the variable in brackets; the command line wins.\n\n"
    "Exit status: the program's own; 128 + n if signal n ended it: 137 killed, as for lack of RAM, 139 an invalid "
    "access;\n"
    "134 aborted, or far memory was lost, as a message says; 126 or 127 if it cannot be run; 1 if far memory cannot "
    "be\n"
    "reached; 2 for a mistake on the command line.\n\n"
    "Examples:\n"
    "  farside run --local 256M -- sort big.txt\n"
    "  farside run --local 25% --far tcp://10.0.0.2:7170 --token-file secret -- redis-server --save ''\n"
    "  farside run --local 25% --stats=json:stats.json -- python3 job.py\n"
    "  farside run --local 1G --far 'file:/mnt/nvme/far?size=64G' -- ./simulation\n"
    "  FARSIDE_LOCAL=1G farside run --quiet -- make -j8";

// Connects to the named server once before the program starts, so that a wrong address or token is reported at once.
Status check_server(const Options& options) {
  return remote::connect_store(
             {.address = options.far_address,
              .token = options.token,
              .region_bytes = remote::kSlabBytes,
              .replicas = options.replicas,
              .retry = {options.patience_ns},
              .relays = {.tls = options.tls_relay, .ucx = options.ucx_relay},
              .plain_text = options.require_tls ? remote::PlainText::kRefused : remote::PlainText::kReported})
      .status();
}

// A limit of files' sizes binds what processes of the run write to the far file and its tables, which are sparse and
// large.
Status check_file_limit(const char* path) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return Status::error(EFBIG, "cannot {} the far file {}: files may have {} at most; use 'ulimit -f unlimited'",
                       "create", path, format_size(limit.rlim_cur));
}

// The servers in a controller's list may use TLS, even if the controller does not.
bool may_use_tls(std::string_view address) {
  return address.find("tls://") != address.npos || address.starts_with("pool");
}

bool may_use_ucx(std::string_view address) { return address.find("ucx://") != address.npos; }

// No process of the run writes a core: with a limit of 1 the kernel also starts no program that receives cores.
void forbid_cores() {
  rlimit one = {1, 1};
  setrlimit(RLIMIT_CORE, &one);
}

// What the kernel is to execute: the program, or the loader of static programs.
Result<std::string> executable_for(const std::string& path) {
  if (!is_static_program(path)) return path;
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  setenv(kStaticVariable, path.c_str(), 1);
  return installation->static_loader();
}

void log_if_failed(const Status& status) {
  if (!status.ok()) log_failure(status, kCommandFailed);
}

// What a run sets up before its program starts (a private directory, the server or relay, the environment) and releases
// after its end.
class Run {
 public:
  Run(const RunSettings& settings, std::vector<std::string> program)
      : settings_(settings), program_(std::move(program)) {}

  // Sets up far memory and the program's environment.
  Status prepare(const std::string& library) {
    for (const std::string& file : {settings_.stats_file(), std::string(settings_.options.timeline)}) {
      Status writable = check_writable(file);
      if (!writable.ok()) return writable;
    }
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    Status made = make_report_file();
    if (!made.ok()) return made;
    Status relayed = may_use_tls(settings_.options.far_address) ? start_relay() : Status();
    if (relayed.ok() && may_use_ucx(settings_.options.far_address)) relayed = start_ucx_relay();
    if (!relayed.ok()) return relayed;
    place_ = far_place(settings_.options);
    Status reached = prepare_far_memory();
    if (!reached.ok()) return reached;
    watch_ = std::make_unique<RunWatch>(report_file_);
    Status measured = start_metrics();
    if (!measured.ok()) return measured;
    return fill_environment(library);
  }

  // Starts the program and returns when neither it nor a process that outlives it uses the embedded server or the
  // relay.
  Result<int> start_and_wait(const std::string& path) {
    Result<std::string> executable = executable_for(path);
    if (!executable.ok()) return executable.status();
    if (settings_.options.core == CoreContent::kNone) forbid_cores();
    Result<pid_t> child = start_child(*executable, program_, hold_);
    if (!child.ok()) return child.status();
    child_ = *child;
    watch_->start([this] {
      if (metrics_) metrics_->refresh_file();
      if (settings_.options.timeline[0] != 0) timeline_.add(watch_->running());
      look_at_server();
    });
    int status = wait_for_child(child_, hold_);
    serve_remaining_processes();
    return status;
  }

  void publish_report(int wait_status) const {
    watch_->stop();
    if (metrics_) metrics_->finish(wait_status);
    RunReport report = RunReport::read(report_file_);
    report.forget_running_processes();
    for (nlohmann::json& process : watch_->gone()) report.add_last_seen(std::move(process));
    const Options& options = settings_.options;
    if (!options.quiet) {
      RunEnd end = {wait_status, child_, place_, stored_, options.huge, options.core, options.verbose};
      fputs(summary(report, end).c_str(), stderr);
    }
    if (options.timeline[0] != 0)
      log_if_failed(write_file(options.timeline, timeline_.to_svg(fmt::format("{}", fmt::join(program_, " ")))));
    if (options.stats[0] == 0) return;
    nlohmann::json json = report.to_json(program_, wait_status);
    if (server_) json["server"] = stored_.to_json();
    log_if_failed(write_file(settings_.stats_file(), json.dump(2) + "\n"));
  }

 private:
  // Processes append to it, also after a change of their user.
  Status make_report_file() {
    report_file_ = directory_->secret_file("report");
    int fd = open(report_file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool made = fd >= 0 && fchmod(fd, 0622) == 0;
    if (fd >= 0) close(fd);
    return made ? Status() : Status::error(errno, "cannot create {}: {}", report_file_, strerror(errno));
  }

  Status prepare_far_memory() {
    if (settings_.embedded()) return start_server();
    return settings_.in_file() ? create_far_file() : check_server(settings_.options);
  }

  Status create_far_file() {
    FarFileFds inherited;
    if (parse_far_file_fds(settings_.options.token, &inherited)) return {};
    auto address = remote::parse_address(settings_.options.far_address);
    if (!address.ok()) return address.status();
    if (Status possible = check_file_limit(address->file.path); !possible.ok()) return possible;
    auto file = remote::FarFile::create(*address);
    if (!file.ok()) return file.status();
    far_file_ = std::move(*file);
    return copy_text(far_file_->hand_over(), settings_.options.token, "the token");
  }

  Status start_server() {
    const Options& options = settings_.options;
    server::ServerConfig config;
    config.memory = settings_.far_memory();
    config.compress = options.compress;
    if (Status s = server::parse_overflow("--tune overflow", options.overflow, &config.overflow); !s.ok()) return s;
    auto server = EmbeddedServer::start(*directory_, config, options.offload);
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    Status copied = copy_text(server_->token(), settings_.options.token, "the token");
    return copied.ok() ? set_option(&settings_.options, "--far", server_->address()) : copied;
  }

  Status start_relay() {
    auto relay = PrivateRelay::start(*directory_, tls_settings(settings_.options));
    if (!relay.ok()) return relay.status();
    relay_ = std::move(*relay);
    return copy_text(relay_->socket(), settings_.options.tls_relay, "the path of the TLS relay");
  }

  Status start_ucx_relay() {
    auto installation = find_installation();
    if (!installation.ok()) return installation.status();
    auto relay = UcxRelay::start(*directory_, {installation->ucx_helper(), settings_.options.ucx});
    if (!relay.ok()) return relay.status();
    ucx_relay_ = std::move(*relay);
    return copy_text(ucx_relay_->socket(), settings_.options.ucx_relay, "the path of the UCX relay");
  }

  Status start_metrics() {
    RunMetrics::Outputs outputs = {settings_.metrics_address(), settings_.metrics_file()};
    if (!outputs.any()) return {};
    auto metrics = RunMetrics::start(outputs, std::filesystem::path(program_.front()).filename(), *watch_,
                                     [this](Exposition* out) {
                                       if (server_) server_->append_metrics(out);
                                     });
    if (!metrics.ok()) return metrics.status();
    metrics_ = std::move(*metrics);
    return {};
  }

  Status fill_environment(const std::string& library) {
    Result<std::string> list = preload_list(getenv("LD_PRELOAD"), library);
    if (!list.ok()) return list.status();
    Status copied = copy_text(report_file_, settings_.options.report, "the path of the report");
    Status handed_over = copied.ok() ? hand_over(settings_.options) : copied;
    if (!handed_over.ok()) return handed_over;
    setenv(kAnnounceVariable, "1", 1);
    setenv("LD_PRELOAD", list->c_str(), 1);
    if (getenv(kAuditVariable)) setenv(kTunablesVariable, tunables_for_audit(getenv(kTunablesVariable)).c_str(), 1);
    for (const auto& [name, value] : kWithoutDirectCopies) setenv(name, value, 0);
    return {};
  }

  // Of processes that reach far memory through this one, or whose far memory it overwrites in the end.
  uint64_t connections() const {
    uint64_t users = far_file_ && far_file_->is_wiped() ? far_file_->users() : 0;
    return users + (server_ ? server_->clients() : 0) + (relay_ ? relay_->connections() : 0) +
           (ucx_relay_ ? ucx_relay_->connections() : 0);
  }

  bool clients_disconnect_within(int milliseconds) {
    for (int waited = 0; connections() > 0; waited += kPollMs) {
      if (waited >= milliseconds || stop_signal_within(hold_, kPollMs)) return false;
    }
    return true;
  }

  // By the watch's thread.
  void look_at_server() {
    if (!server_) return;
    EmbeddedServer::Use now = server_->use();
    stored_.add(now.stored, now.used, now.overflow);
    warn_if_nearly_full(now.filled, now.capacity);
  }

  // Once, before requests for memory are refused.
  void warn_if_nearly_full(double filled, uint64_t capacity) {
    constexpr double kNearlyFull = 0.9;
    if (warned_ || settings_.options.quiet || filled < kNearlyFull) return;
    warned_ = true;
    log(LogLevel::kWarning,
        "{:.0f}% of far memory ({}) is reserved, and soon the server is full; raise --far-memory, add a file with "
        "--tune overflow, or name a server with --far",
        100 * filled, format_size(capacity));
  }

  // The far pages of a daemon are stored in the embedded server, or reached through the relay.
  void serve_remaining_processes() {
    if (clients_disconnect_within(kDisconnectMs)) return;
    if (!settings_.options.quiet) {
      fmt::print(
          stderr,
          "farside: the program ended, but processes that it started use far memory; serving them until they end "
          "(an interrupt ends them)\n");
    }
    while (connections() > 0 && !stop_signal_within(hold_, kDisconnectMs)) {}
  }

  SignalHold hold_;  // before the server's threads
  RunSettings settings_;
  std::vector<std::string> program_;
  std::unique_ptr<PrivateDirectory> directory_;
  std::unique_ptr<EmbeddedServer> server_;
  std::unique_ptr<PrivateRelay> relay_;
  std::unique_ptr<UcxRelay> ucx_relay_;
  std::unique_ptr<remote::FarFile> far_file_;
  std::string report_file_;
  pid_t child_ = 0;
  FarPlace place_ = FarPlace::kThisMachine;
  StoredMean stored_;
  std::unique_ptr<RunWatch> watch_;
  std::unique_ptr<RunMetrics> metrics_;
  Timeline timeline_;
  bool warned_ = false;
};

Result<int> run_to_the_end(const RunSettings& settings, const std::vector<std::string>& program,
                           const std::string& path, const std::string& library) {
  Run run(settings, program);
  Status prepared = run.prepare(library);
  if (!prepared.ok()) return prepared;
  Result<int> wait_status = run.start_and_wait(path);
  if (wait_status.ok()) run.publish_report(*wait_status);
  return wait_status;
}

}  // namespace

Result<std::string> find_runnable(const char* command, const std::vector<std::string>& program, int* exit_status,
                                  StaticPrograms static_programs) {
  *exit_status = kExitUsage;
  if (program.empty()) {
    return Status::error(EINVAL, "no program given; write it after --, as in: {} -- sort big.txt", command);
  }
  const char* search_path = getenv("PATH");
  Result<std::string> path = find_program(program.front(), search_path ? search_path : "/usr/bin:/bin");
  if (path.ok() && static_programs == StaticPrograms::kAccepted && is_static_program(*path)) return path;
  Status suitable = path.ok() ? check_program(*path) : path.status();
  if (suitable.ok()) return path;
  *exit_status = exit_status_of(suitable);
  return suitable;
}

Result<int> run_program(const char* command, const GivenOptions& given, const std::vector<std::string>& program,
                        int* exit_status) {
  *exit_status = kExitUsage;
  Result<RunSettings> settings = settle(given);
  if (!settings.ok()) return settings.status();
  Result<std::string> path = find_runnable(command, program, exit_status, StaticPrograms::kAccepted);
  if (!path.ok()) return path.status();
  *exit_status = kExitFailure;
  bool shares_memory = settings->embedded() || settings->in_file() || strstr(settings->options.far_address, "shm://");
  Status possible = check_machine(settings->options, shares_memory);
  if (!possible.ok()) return possible;
  Result<std::string> library = find_preload_library();
  if (!library.ok()) return library.status();
  return run_to_the_end(*settings, program, *path, *library);
}

void add_run_command(Command& parent, std::vector<std::string> program) {
  Command& command =
      parent.add_command("run", "Run a program with most of its memory far: farside run [OPTIONS] -- PROGRAM ARGS...");
  auto given = std::make_shared<GivenOptions>();
  add_table_options(command, given.get());
  command.expect_program();
  command.set_footer(kHelp);
  command.set_action([given, program = std::move(program)] {
    int exit_status = 0;
    Result<int> wait_status = run_program("farside run", *given, program, &exit_status);
    return wait_status.ok() ? end_like_child(*wait_status) : fail(wait_status.status(), exit_status);
  });
}

}  // namespace farside::cli
