// farside serve: lends this machine's memory until a signal stops it, alone or in a pool, or runs a pool's controller.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/metrics_http.h"
#include "cli/run_settings.h"
#include "launch/child.h"
#include "remote/address.h"
#include "report/machine.h"
#include "server/reporter.h"
#include "server/server.h"

namespace farside::cli {
namespace {

constexpr int kStatusEveryMs = 1000;
constexpr unsigned kMaxWorkers = 64;

constexpr const char* kHelp =
    "Sizes: a number and K, M, G or T, powers of 1024, as in 4G.\n"
    "Serves until SIGINT or SIGTERM, then prints its last state. Programs that still use its memory end with an "
    "error message.\n\n"
    "Examples:\n"
    "  farside serve --memory 4G --listen 127.0.0.1:7170\n"
    "  farside serve --memory 64G --listen 0.0.0.0:7170 --token-file secret --quota 8G --metrics 127.0.0.1:9170\n"
    "  farside serve --memory 4G --unix /run/farside.sock\n"
    "A pool (docs/guide/pool.md):\n"
    "  farside serve --controller --listen 10.0.0.1:7100 --token-file secret\n"
    "  farside serve --memory 64G --listen 10.0.0.2:7170 --pool 10.0.0.1:7100 --token-file secret";

constexpr double kGraceSeconds = 30;
constexpr uint64_t kSecondNs = 1'000'000'000;

struct ServeArguments {
  std::string memory, listen, unix_path, token_file, quota, metrics, pool, address;
  unsigned workers = 1;
  double grace = kGraceSeconds;
  bool controller = false;
};

Result<uint64_t> memory_to_lend(const std::string& text) {
  Result<uint64_t> bytes = parse_size(text);
  if (!bytes.ok()) return bytes;
  MachineMemory machine = machine_memory();
  if (*bytes == 0 || *bytes > machine.total) {
    return Status::error(EINVAL, "--memory {}: this machine has {}; lend less than that", text,
                         format_size(machine.total));
  }
  if (*bytes > machine.available) {
    log(LogLevel::kWarning, "--memory {} is more than the {} that are free now", text, format_size(machine.available));
  }
  return bytes;
}

Status check_listen(const ServeArguments& arguments) {
  if (arguments.listen.empty() && arguments.unix_path.empty()) {
    return Status::error(EINVAL, "no address to listen on; give --listen HOST:PORT or --unix PATH");
  }
  if (arguments.listen.empty()) return {};
  Result<HostPort> address = parse_host_port(arguments.listen);
  if (!address.ok()) return address.status();
  if (!address->is_loopback() && arguments.token_file.empty()) {
    log(LogLevel::kWarning,
        "{} can be reached from other machines and no --token-file is given: any client may reserve memory",
        arguments.listen);
  }
  return {};
}

Result<server::ServerConfig> make_config(const ServeArguments& arguments) {
  Status listen = check_listen(arguments);
  if (!listen.ok()) return listen;
  server::ServerConfig config;
  if (arguments.memory.empty() && !arguments.controller)
    return Status::error(EINVAL, "no memory to lend; give --memory SIZE, or --controller to run a pool's controller");
  if (!arguments.memory.empty()) {
    Result<uint64_t> memory = memory_to_lend(arguments.memory);
    if (!memory.ok()) return memory.status();
    config.memory = *memory;
  }
  config.controller = arguments.controller;
  config.grace_ns = static_cast<uint64_t>(arguments.grace * static_cast<double>(kSecondNs));
  config.listen = arguments.listen;
  config.unix_path = arguments.unix_path;
  config.workers = arguments.workers;
  if (!arguments.quota.empty()) {
    Result<uint64_t> quota = parse_size(arguments.quota);
    if (!quota.ok()) return quota.status();
    config.quota = *quota;
  }
  if (!arguments.token_file.empty()) {
    Result<std::string> token = read_token_file(arguments.token_file);
    if (!token.ok()) return token.status();
    config.token = *token;
  }
  return config;
}

std::string status_text(const server::ServerStats& stats) {
  return fmt::format("{} of {} reserved, {} stored; {} connections, {} refused requests",
                     format_size(stats.reserved_bytes), format_size(stats.capacity_bytes),
                     format_size(stats.stored_bytes), stats.clients,
                     stats.refused_requests + stats.refused_tokens + stats.bad_frames);
}

// The TCP address with the port that was taken where 0 was given.
std::string tcp_place(const ServeArguments& arguments, const server::Server& server) {
  return arguments.listen.substr(0, arguments.listen.rfind(':') + 1) + std::to_string(server.tcp_port());
}

std::string places(const ServeArguments& arguments, const server::Server& server) {
  std::string text = arguments.listen.empty() ? "" : "tcp://" + tcp_place(arguments, server);
  if (arguments.unix_path.empty()) return text;
  return text + (text.empty() ? "" : " and ") + "shm://" + arguments.unix_path;
}

// The address under which a server is listed in its pool.
Result<std::string> address_in_pool(const ServeArguments& arguments, const server::Server& server) {
  std::string address = arguments.address;
  if (address.empty() && arguments.listen.empty()) address = "shm://" + arguments.unix_path;
  if (address.empty()) {
    Result<HostPort> listen = parse_host_port(arguments.listen);
    if (!listen.ok()) return listen.status();
    if (listen->is_everywhere()) {
      return Status::error(EINVAL,
                           "clients cannot connect to {}; name the address of this server with --address "
                           "tcp://HOST:PORT",
                           arguments.listen);
    }
    address = "tcp://" + tcp_place(arguments, server);
  }
  if (address.size() < wire::kAddressBytes) return address;
  return Status::error(EINVAL, "the address {} is longer than {} bytes", address, wire::kAddressBytes - 1);
}

Result<std::unique_ptr<server::Reporter>> join_pool(const ServeArguments& arguments, const std::string& token,
                                                    const server::Server& server) {
  Result<std::string> address = address_in_pool(arguments, server);
  if (!address.ok()) return address.status();
  Result<remote::Address> controller = remote::parse_address(("pool://" + arguments.pool).c_str());
  if (!controller.ok()) return controller.status();
  return std::make_unique<server::Reporter>(controller->endpoint, token, *address,
                                            [&server](wire::ServerReport* report) {
                                              server::ServerStats stats = server.stats();
                                              report->lent = stats.capacity_bytes;
                                              report->reserved = stats.reserved_bytes;
                                              report->stored = stats.stored_bytes;
                                              report->clients = stats.regions;
                                            });
}

// In a pool: no new slabs are placed here; those already here are served until their programs end.
void wait_for_clients(const server::Server& server, const SignalHold& hold) {
  uint64_t regions = server.stats().regions;
  if (regions == 0) return;
  fmt::print(stderr,
             "farside: leaving the pool; waiting for the programs that use {} regions (interrupt again to stop now)\n",
             regions);
  while (server.stats().regions > 0 && !stop_signal_within(hold, kStatusEveryMs)) {}
}

void serve_until_signal(const server::Server& server, const SignalHold& hold) {
  bool terminal = isatty(STDERR_FILENO) != 0;
  while (!stop_signal_within(hold, kStatusEveryMs)) {
    if (terminal) fmt::print(stderr, "\r\033[K{}", status_text(server.stats()));
  }
  if (terminal) fputs("\r\033[K", stderr);
}

// Each thread of a client has a connection, and each region on shared memory a file: as many as this user may have.
void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::unique_ptr<MetricsEndpoint>> serve_metrics(const std::string& address, const server::Server& server) {
  auto endpoint = MetricsEndpoint::start(
      address, {[&server] { return server.prometheus_text(); }, [&server] { return server.ready(); }});
  if (!endpoint.ok()) return endpoint;
  std::string host = address.substr(0, address.rfind(':'));
  if (parse_host_port(address)->is_everywhere()) {
    log(LogLevel::kWarning,
        "--metrics {}: everyone who can reach this machine can read the metrics; bind it to one address", address);
  }
  fmt::print(stderr, "farside: metrics at http://{}:{}/metrics\n", host, (*endpoint)->port());
  return endpoint;
}

int serve(const ServeArguments& arguments) {
  raise_descriptor_limit();
  Result<server::ServerConfig> config = make_config(arguments);
  if (!config.ok()) return fail(config.status(), kExitUsage);
  SignalHold hold;
  auto server = server::Server::start(*config);
  if (!server.ok()) return fail(server.status());
  std::unique_ptr<MetricsEndpoint> metrics;
  if (!arguments.metrics.empty()) {
    auto endpoint = serve_metrics(arguments.metrics, **server);
    if (!endpoint.ok()) return fail(endpoint.status());
    metrics = std::move(*endpoint);
  }
  std::unique_ptr<server::Reporter> reporter;
  if (!arguments.pool.empty()) {
    auto joined = join_pool(arguments, config->token, **server);
    if (!joined.ok()) return fail(joined.status(), kExitUsage);
    reporter = std::move(*joined);
  }
  if (config->memory > 0)
    fmt::print(stderr, "farside: lending {} at {}\n", format_size(config->memory), places(arguments, **server));
  if (config->controller)
    fmt::print(stderr, "farside: serving a pool's list of servers at pool://{}\n", tcp_place(arguments, **server));
  serve_until_signal(**server, hold);
  if (reporter) {
    reporter->leave();
    wait_for_clients(**server, hold);
    reporter.reset();
  }
  metrics.reset();
  std::string held = status_text((*server)->stats());
  (*server)->stop();
  fmt::print(stderr, "farside: stopped; {}\n", held);
  return 0;
}

}  // namespace

void add_serve_command(Command& parent) {
  Command& command = parent.add_command("serve", "Lend this machine's memory to programs on other machines");
  auto arguments = std::make_shared<ServeArguments>();
  command.add_option("--memory", &arguments->memory, "memory to lend, as in 4G").value("SIZE");
  command.add_option("--listen", &arguments->listen, "TCP address to serve").value("HOST:PORT");
  command.add_option("--unix", &arguments->unix_path, "Unix socket to serve shared memory on").value("PATH");
  command
      .add_option("--token-file", &arguments->token_file,
                  "file whose first line is the secret that clients must present")
      .value("FILE");
  command.add_option("--quota", &arguments->quota, "limit on the memory of one client (default: all)").value("SIZE");
  command.add_option("--metrics", &arguments->metrics, "HTTP address of the metrics, for Prometheus")
      .value("HOST:PORT");
  command.add_option("--workers", &arguments->workers, "server threads (default: 1)").value("N").range(1U, kMaxWorkers);
  command.add_option("--grace", &arguments->grace, "seconds for which a region is kept after its connections broke")
      .value("S")
      .non_negative()
      .show_default();
  command.add_flag("--controller", &arguments->controller,
                   "run a pool's controller, which lists its servers; --memory is optional");
  command.add_option("--pool", &arguments->pool, "controller of the pool to join").value("HOST:PORT");
  command
      .add_option("--address", &arguments->address,
                  "address at which a pool's clients reach this server (default: as --listen)")
      .value("ADDRESS");
  command.set_footer(kHelp);
  command.set_action([arguments] { return serve(*arguments); });
}

}  // namespace farside::cli
