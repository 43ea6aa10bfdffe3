// farside serve: lends this machine's memory until it is told to stop.
#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "base/size.h"
#include "cli/child.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/metrics_http.h"
#include "cli/run_settings.h"
#include "server/server.h"

namespace farside::cli {
namespace {

constexpr int kStatusEveryMs = 1000;
constexpr unsigned kMostWorkers = 64;

constexpr const char* kHelp =
    "Sizes: a number and K, M, G or T, powers of 1024, as in 4G.\n"
    "Serves until SIGINT or SIGTERM, then tells what it held. Programs that still use its memory end with a "
    "message.\n\n"
    "Examples:\n"
    "  farside serve --memory 4G --listen 127.0.0.1:7170\n"
    "  farside serve --memory 64G --listen 0.0.0.0:7170 --token-file secret --quota 8G --metrics 127.0.0.1:9170\n"
    "  farside serve --memory 4G --unix /run/farside.sock";

struct ServeArguments {
  std::string memory, listen, unix_path, token_file, quota, metrics;
  unsigned workers = 1;
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
    return Status::error(EINVAL, "nowhere to listen; give --listen HOST:PORT or --unix PATH");
  }
  if (arguments.listen.empty()) return {};
  Result<HostPort> address = parse_host_port(arguments.listen);
  if (!address.ok()) return address.status();
  if (!address->is_loopback() && arguments.token_file.empty()) {
    log(LogLevel::kWarning,
        "{} can be reached from other machines and no --token-file is given: anyone may take memory", arguments.listen);
  }
  return {};
}

Result<server::ServerConfig> make_config(const ServeArguments& arguments) {
  Status listen = check_listen(arguments);
  if (!listen.ok()) return listen;
  server::ServerConfig config;
  Result<uint64_t> memory = memory_to_lend(arguments.memory);
  if (!memory.ok()) return memory.status();
  config.memory = *memory;
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

std::string places(const ServeArguments& arguments) {
  std::string text = arguments.listen.empty() ? "" : "tcp://" + arguments.listen;
  if (arguments.unix_path.empty()) return text;
  return text + (text.empty() ? "" : " and ") + "shm://" + arguments.unix_path;
}

void serve_until_told(const server::Server& server, const SignalHold& hold) {
  bool terminal = isatty(STDERR_FILENO) != 0;
  while (!stop_signal_within(hold, kStatusEveryMs)) {
    if (terminal) fmt::print(stderr, "\r\033[K{}", status_text(server.stats()));
  }
  if (terminal) fputs("\r\033[K", stderr);
}

int serve(const ServeArguments& arguments) {
  Result<server::ServerConfig> config = make_config(arguments);
  if (!config.ok()) return fail(config.status(), kExitUsage);
  SignalHold hold;
  auto server = server::Server::start(*config);
  if (!server.ok()) return fail(server.status());
  std::unique_ptr<MetricsEndpoint> metrics;
  if (!arguments.metrics.empty()) {
    auto endpoint = MetricsEndpoint::start(arguments.metrics, [&server] { return (*server)->prometheus_text(); });
    if (!endpoint.ok()) return fail(endpoint.status());
    metrics = std::move(*endpoint);
  }
  fmt::print(stderr, "farside: lending {} at {}\n", format_size(config->memory), places(arguments));
  serve_until_told(**server, hold);
  metrics.reset();
  std::string held = status_text((*server)->stats());
  (*server)->stop();
  fmt::print(stderr, "farside: stopped; {}\n", held);
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Lend this machine's memory to programs on other machines");
  auto arguments = std::make_shared<ServeArguments>();
  command->add_option("--memory", arguments->memory, "memory to lend, as in 4G")->required()->type_name("SIZE");
  command->add_option("--listen", arguments->listen, "TCP address to serve")->type_name("HOST:PORT");
  command->add_option("--unix", arguments->unix_path, "Unix socket to serve shared memory on")->type_name("PATH");
  command
      ->add_option("--token-file", arguments->token_file, "file whose first line is the secret that clients must know")
      ->type_name("FILE");
  command->add_option("--quota", arguments->quota, "most memory that one client may hold (default: all)")
      ->type_name("SIZE");
  command->add_option("--metrics", arguments->metrics, "address of a page for Prometheus")->type_name("HOST:PORT");
  command->add_option("--workers", arguments->workers, "threads that serve (default: 1)")
      ->type_name("N")
      ->check(CLI::Range(1U, kMostWorkers));
  command->footer(kHelp);
  set_action(command, [arguments] { return serve(*arguments); });
}

}  // namespace farside::cli
