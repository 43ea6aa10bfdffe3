// farside serve: lends this machine's memory until a signal stops it, alone or in a pool, or runs a pool's controller.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/size.h"
#include "base/sync.h"
#include "cli/commands.h"
#include "cli/metrics_http.h"
#include "cli/process_metrics.h"
#include "cli/serve_options.h"
#include "launch/child.h"
#include "launch/installation.h"
#include "report/machine.h"
#include "server/reporter.h"
#include "server/server.h"

namespace farside::cli {
namespace {

constexpr int kStatusEveryMs = 1000;

constexpr uint64_t kSecondNs = 1'000'000'000;

// ---------------------------------------------------------------- values of single options; none is given: ""

Status read_memory(const std::string& text, uint64_t* memory) {
  if (text.empty()) return {};
  Result<uint64_t> bytes = parse_size(text);
  MachineMemory machine = machine_memory();
  if (!bytes.ok() || *bytes < wire::kSlabBytes || *bytes > machine.total) {
    return Status::error(EINVAL, "--memory={} is not valid; use {} to {}, which this machine has", text,
                         format_size(wire::kSlabBytes), format_size(machine.total));
  }
  if (*bytes > machine.available) {
    log(LogLevel::kWarning, "--memory {} is more than the {} that are free now", text, format_size(machine.available));
  }
  *memory = *bytes;
  return {};
}

Status read_size(const char* option, const std::string& text, uint64_t* bytes) {
  if (text.empty()) return {};
  Result<uint64_t> size = parse_size(text);
  if (!size.ok() || *size == 0)
    return Status::error(EINVAL, "{}={} is not valid; use a size above 0, as in 4G", option, text);
  *bytes = *size;
  return {};
}

Status check_place(const char* option, const std::string& text) {
  return text.empty() ? Status() : parse_host_port(option, text).status();
}

// Its host is looked up when the server runs, and its relay started.
Status check_address(const char* option, const std::string& text) {
  if (text.empty()) return {};
  Status parsed =
      remote::parse_address(text.c_str(), {.tls = "later", .ucx = "later"}, remote::HostNames::kRefused).status();
  bool is_host_name = parsed.code() == EHOSTUNREACH;
  return parsed.ok() || is_host_name ? Status() : Status::error(EINVAL, "{}: {}", option, parsed.text());
}

Status check_zone(const std::string& zone) {
  bool printable = std::ranges::all_of(zone, [](char c) { return c > ' ' && c < 127; });
  if (printable && zone.size() < wire::kZoneBytes) return {};
  return Status::error(EINVAL, "--zone '{}': not 1 to {} printable characters without spaces", zone,
                       wire::kZoneBytes - 1);
}

Status read_certificate(const TlsArguments& tls, std::shared_ptr<const tls::Credentials>* out) {
  if (tls.files.certificate.empty() && tls.files.key.empty() && !tls.verify_clients) return {};
  auto credentials = tls::Credentials::for_server(tls.files, tls.verify_clients);
  if (credentials.ok()) *out = *credentials;
  return credentials.status();
}

Status take_tokens(const TokenFiles& files, std::vector<server::TokenEntry>* tokens) {
  auto read = read_tokens(files);
  if (read.ok()) *tokens = *read;
  return read.status();
}

// A wrong value is named before what is missing, or does not fit together.
Status read_values(const ServeArguments& arguments, server::ServerConfig* config) {
  sandbox::Limits* limits = &config->calls.limits;
  for (Status value : {read_memory(arguments.memory, &config->memory),
                       server::parse_overflow("--overflow", arguments.overflow, &config->overflow),
                       read_size("--quota", arguments.quota, &config->quota),
                       read_size("--offload-memory", arguments.offload_memory, &limits->memory),
                       read_size("--offload-code", arguments.offload_code, &limits->code_bytes),
                       check_place("--listen", arguments.listen), check_place("--metrics", arguments.metrics),
                       check_address("--pool", with_pool_scheme(arguments.pool)),
                       check_address("--address", arguments.address), check_zone(arguments.zone),
                       take_tokens(arguments.tokens, &config->tokens), read_certificate(arguments.tls, &config->tls)}) {
    if (!value.ok()) return value;
  }
  return {};
}

// ------------------------------------------------------------------------------------------- all options together

Status check_listen(const ServeArguments& arguments, bool has_tls) {
  if (arguments.listen.empty() && arguments.unix_path.empty()) {
    return Status::error(EINVAL, "no address to listen on; give --listen HOST:PORT or --unix PATH");
  }
  if (arguments.listen.empty() && has_tls) return Status::error(EINVAL, "--tls cert is for TCP; give --listen, too");
  if (arguments.listen.empty() || parse_host_port("--listen", arguments.listen)->is_loopback()) return {};
  if (!arguments.tokens.any() && !arguments.tls.verify_clients) {
    log(LogLevel::kWarning,
        "{} can be reached from other machines and neither --tokens nor --token-file is given: any client may reserve "
        "memory",
        arguments.listen);
  }
  if (!arguments.tls.files.certificate.empty()) return {};
  if (arguments.tls.required)
    return Status::error(
        EACCES, "{} would be served without encryption, which --tls required forbids; give --tls cert=FILE,key=FILE",
        arguments.listen);
  log(LogLevel::kWarning,
      "{} can be reached from other machines and is not encrypted: who reads the network sees the data; "
      "give --tls cert=FILE,key=FILE",
      arguments.listen);
  return {};
}

// Functions of clients.
Status set_calls(const ServeArguments& arguments, server::CallConfig* calls) {
  if (!arguments.offload) return {};
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  calls->host_program = installation->offload_host();
  calls->max_processes = arguments.offload_processes;
  auto nanoseconds = [](double seconds) { return static_cast<uint64_t>(seconds * static_cast<double>(kSecondNs)); };
  calls->limits.cpu_ns = nanoseconds(arguments.offload_cpu);
  calls->limits.wall_ns = nanoseconds(arguments.offload_seconds);
  return {};
}

// One-sided access to the memory of clients.
Status set_ucx(const std::string& transports, server::ServerConfig* config) {
  if (transports.empty()) return {};
  if (config->listen.empty()) return Status::error(EINVAL, "--ucx is for clients over TCP; give --listen, too");
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  config->ucx = {installation->ucx_helper(), transports};
  auto found = ucx::survey(config->ucx);
  if (!found.ok()) return found.status();
  if (found->has_card && !found->pages_on_demand)
    log(LogLevel::kWarning, "the network card of --ucx {} cannot fault pages in on demand, so UCX does not use it",
        transports);
  if (!found->has_only_cards())
    log(LogLevel::kWarning,
        "--ucx {} has transports without checks of who reads and writes the memory of clients; use it only where all "
        "machines of the network are trusted",
        transports);
  return {};
}

Result<server::ServerConfig> make_config(const ServeArguments& arguments) {
  server::ServerConfig config;
  if (Status values = read_values(arguments, &config); !values.ok()) return values;
  if (Status listen = check_listen(arguments, config.tls != nullptr); !listen.ok()) return listen;
  if (!arguments.zone.empty() && arguments.pool.empty())
    return Status::error(EINVAL, "--zone is for a server of a pool; add --pool");
  if (config.memory == 0 && !arguments.controller)
    return Status::error(EINVAL, "no memory to lend; give --memory SIZE, or --controller to run a pool's controller");
  config.controller = arguments.controller;
  auto compression = std::ranges::find(kCompressionNames, arguments.compress);
  config.compress = static_cast<Compression>(compression - std::begin(kCompressionNames));
  config.grace_ns = static_cast<uint64_t>(arguments.grace * static_cast<double>(kSecondNs));
  config.listen = arguments.listen;
  if (Status calls = set_calls(arguments, &config.calls); !calls.ok()) return calls;
  if (Status ucx = set_ucx(arguments.ucx, &config); !ucx.ok()) return ucx;
  config.unix_path = arguments.unix_path;
  config.workers = arguments.workers;
  if (arguments.controller || !arguments.pool.empty()) {
    Result<std::string> secret = secret_for_reports(config.tokens);
    if (!secret.ok()) return secret.status();
  }
  return config;
}

std::string status_text(const server::ServerStats& stats) {
  std::string overflow =
      stats.overflow_bytes > 0 ? fmt::format(" and {} of a file", format_size(stats.overflow_bytes)) : "";
  return fmt::format("{} of {} reserved, {} stored in {}{}; {} connections, {} refused requests",
                     format_size(stats.reserved_bytes), format_size(stats.capacity_bytes),
                     format_size(stats.stored_bytes), format_size(stats.used_bytes), overflow, stats.clients,
                     stats.refused_requests + stats.refused_tokens + stats.bad_frames);
}

// The TCP address with the port that was taken where 0 was given.
std::string tcp_place(const ServeArguments& arguments, const server::Server& server) {
  return arguments.listen.substr(0, arguments.listen.rfind(':') + 1) + std::to_string(server.tcp_port());
}

std::string places(const ServeArguments& arguments, const server::Server& server) {
  std::string text = arguments.listen.empty() ? "" : arguments.scheme() + tcp_place(arguments, server);
  if (arguments.unix_path.empty()) return text;
  return text + (text.empty() ? "" : " and ") + "shm://" + arguments.unix_path;
}

// The address under which a server is listed in its pool.
Result<std::string> address_in_pool(const ServeArguments& arguments, const server::Server& server) {
  std::string address = arguments.address;
  if (address.empty() && arguments.listen.empty()) address = "shm://" + arguments.unix_path;
  if (address.empty()) {
    if (parse_host_port("--listen", arguments.listen)->is_everywhere()) {
      return Status::error(EINVAL,
                           "clients cannot connect to {}; name the address of this server with --address {}HOST:PORT",
                           arguments.listen, arguments.scheme());
    }
    address = arguments.scheme() + tcp_place(arguments, server);
  }
  if (address.size() < wire::kAddressBytes) return address;
  return Status::error(EINVAL, "the address {} is longer than {} bytes", address, wire::kAddressBytes - 1);
}

Result<std::unique_ptr<server::Reporter>> join_pool(const ServeArguments& arguments,
                                                    const std::vector<server::TokenEntry>& tokens,
                                                    server::Server& server, ControllerAddress* controller) {
  Result<std::string> address = address_in_pool(arguments, server);
  if (!address.ok()) return address.status();
  if (Status opened = controller->open(arguments.pool, arguments.tls); !opened.ok()) return opened;
  return std::make_unique<server::Reporter>(
      controller->endpoint(), *secret_for_reports(tokens), *address,
      [&server, zone = arguments.zone](wire::ServerReport* report) {
        zone.copy(report->zone, sizeof report->zone - 1);
        server::ServerStats stats = server.stats();
        report->lent = stats.capacity_bytes;
        report->reserved = stats.reserved_bytes;
        report->stored = stats.stored_bytes;
        report->clients = stats.regions;
      },
      [&server](bool on) { server.drain(on); });
}

// Erases the status line of a terminal.
constexpr char kErase[] = "\r\033[K";

bool shows_status() {
  const char* terminal = getenv("TERM");
  bool erases = terminal && strcmp(terminal, "dumb") != 0;
  return erases && isatty(STDERR_FILENO) != 0;
}

void set_up_log(const ServeArguments& arguments) {
  LogLevel level;
  log_level_from_name(arguments.log.c_str(), &level);
  set_log_level(level);
  if (arguments.log_format == "json") set_log_format(LogFormat::kJson);
}

// From now on lines have a time: before, a person reads what is wrong with the options.
void begin_text_log() {
  set_log_format(LogFormat::kText);
  if (shows_status()) set_log_prefix(kErase);
}

// Each thread of a client has a connection, and each region on shared memory a file: as many as this user may have.
void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The state of this server in its pool. Joined when the endpoint's thread runs already.
class Membership {
 public:
  void join(std::unique_ptr<server::Reporter> reporter) {
    LockGuard hold(mutex_);
    reporter_ = std::move(reporter);
  }
  bool is_member() const {
    LockGuard hold(mutex_);
    return reporter_ != nullptr;
  }
  void leave() {
    LockGuard hold(mutex_);
    reporter_->leave();
    leaving_ = true;
  }
  bool is_leaving() const { return leaving_; }
  void set_token(const std::string& token) {
    LockGuard hold(mutex_);
    reporter_->set_token(token);
  }

  void append_metrics(Exposition* out) {
    LockGuard hold(mutex_);
    if (!reporter_) return;
    out->begin("farside_server_pool_reports_total", "counter", "Reports to the pool's controller, by result.");
    out->sample(reporter_->accepted(), {{"result", "accepted"}});
    out->sample(reporter_->failed(), {{"result", "failed"}});
    out->gauge("farside_server_leaving", "1 if the server leaves its pool.", leaving_ ? 1 : 0);
    out->gauge("farside_server_cordoned", "1 if an operator cordoned or drains the server.",
               reporter_->is_cordoned() ? 1 : 0);
  }

 private:
  mutable Mutex mutex_;
  std::unique_ptr<server::Reporter> reporter_ GUARDED_BY(mutex_);
  std::atomic<bool> leaving_{false};
};

// Reads the tokens again. Keeps those that it has if that fails.
void reload_tokens(const TokenFiles& files, server::Server* server, Membership* membership) {
  auto tokens = read_tokens(files);
  Result<std::string> secret = std::string();
  if (tokens.ok() && membership->is_member()) secret = secret_for_reports(*tokens);
  if (!tokens.ok() || !secret.ok()) {
    log(LogLevel::kError, "{}; the tokens stay as they were",
        tokens.ok() ? secret.status().text() : tokens.status().text());
    return;
  }
  server->set_tokens(*tokens);
  if (membership->is_member()) membership->set_token(*secret);
  log(LogLevel::kInfo, "read the tokens again");
}

// A server that runs, and the signals to it.
struct Running {
  const ServeArguments& arguments;
  const SignalHold& hold;
  server::Server* server;
  Membership* membership;

  // SIGHUP reads the tokens again where they are in a file, and stops the server elsewhere.
  bool is_stopped_within(int milliseconds) const {
    int signal = signal_within(hold, milliseconds);
    if (signal != SIGHUP || !arguments.tokens.any()) return is_stop_signal(signal);
    reload_tokens(arguments.tokens, server, membership);
    return false;
  }
};

// In a pool: no new slabs are placed here; those already here are served until programs have moved them, or end.
void wait_for_clients(const Running& running) {
  const server::Server& server = *running.server;
  uint64_t regions = server.stats().regions;
  if (regions == 0) return;
  log(LogLevel::kInfo, "leaving the pool; waiting for the programs that use {} regions (interrupt again to stop now)",
      regions);
  while (server.stats().regions > 0 && !running.is_stopped_within(kStatusEveryMs)) {}
}

void serve_until_signal(const Running& running) {
  bool terminal = shows_status();
  while (!running.is_stopped_within(kStatusEveryMs)) {
    if (terminal) fmt::print(stderr, "{}{}", kErase, status_text(running.server->stats()));
  }
  if (terminal) fputs(kErase, stderr);
}

std::string metrics_text(const server::Server& server, Membership* membership) {
  Exposition out;
  append_build_info(&out);
  append_process_metrics(&out);
  server.append_metrics(&out);
  membership->append_metrics(&out);
  return out.take();
}

Status readiness(const server::Server& server, const Membership& membership) {
  return membership.is_leaving() ? Status::error(ESHUTDOWN, "the server leaves its pool") : server.ready();
}

Result<std::unique_ptr<MetricsEndpoint>> serve_metrics(const std::string& address, const server::Server& server,
                                                       Membership* membership) {
  auto endpoint = MetricsEndpoint::start(address, {[&server, membership] { return metrics_text(server, membership); },
                                                   [&server, membership] { return readiness(server, *membership); }});
  if (!endpoint.ok()) return endpoint;
  std::string host = address.substr(0, address.rfind(':'));
  if (parse_host_port("--metrics", address)->is_everywhere()) {
    log(LogLevel::kWarning,
        "--metrics {}: everyone who can reach this machine can read the metrics; bind it to one address", address);
  }
  log(LogLevel::kInfo, "metrics at http://{}:{}/metrics", host, (*endpoint)->port());
  return endpoint;
}

int serve(ServeArguments& arguments) {
  if (Status read = arguments.tls.read(); !read.ok()) return fail(read, kExitUsage);
  set_up_log(arguments);
  raise_descriptor_limit();
  Result<server::ServerConfig> config = make_config(arguments);
  if (!config.ok()) return fail(config.status(), kExitUsage);
  if (arguments.log_format == "text") begin_text_log();
  SignalHold hold;
  auto server = server::Server::start(*config);
  if (!server.ok()) return fail(server.status());
  ControllerAddress controller;
  Membership membership;
  std::unique_ptr<MetricsEndpoint> metrics;
  if (!arguments.metrics.empty()) {
    auto endpoint = serve_metrics(arguments.metrics, **server, &membership);
    if (!endpoint.ok()) return fail(endpoint.status());
    metrics = std::move(*endpoint);
  }
  if (!arguments.pool.empty()) {
    auto joined = join_pool(arguments, config->tokens, **server, &controller);
    if (!joined.ok()) return fail(joined.status(), kExitUsage);
    membership.join(std::move(*joined));
  }
  if (config->memory > 0 && memory_files_are_huge())
    log(LogLevel::kWarning,
        "the kernel gives clients pages of 2 MiB, so sparse data fills the memory that is lent early; "
        "'echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled' before the server starts");
  if (config->memory > 0)
    log(LogLevel::kInfo, "lending {} at {}", format_size(config->memory), places(arguments, **server));
  if (config->controller)
    log(LogLevel::kInfo, "serving a pool's list of servers at {}{}", arguments.pool_scheme(),
        tcp_place(arguments, **server));
  const Running running = {arguments, hold, server->get(), &membership};
  serve_until_signal(running);
  if (membership.is_member()) {
    membership.leave();
    wait_for_clients(running);
    membership.join(nullptr);
  }
  metrics.reset();
  std::string held = status_text((*server)->stats());
  (*server)->stop();
  log(LogLevel::kInfo, "stopped; {}", held);
  return 0;
}

}  // namespace

void add_serve_command(Command& parent) {
  Command& command = parent.add_command("serve", "Lend this machine's memory to programs on other machines");
  auto arguments = std::make_shared<ServeArguments>();
  add_serve_options(command, arguments.get());
  command.set_action([arguments] { return serve(*arguments); });
}

}  // namespace farside::cli
