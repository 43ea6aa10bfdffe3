#include "cli/serve_options.h"

#include "wire/protocol.h"

namespace farside::cli {
namespace {

constexpr unsigned kMaxWorkers = 64;

constexpr const char* kHelp =
    "Sizes: a number and K, M, G or T, powers of 1024, as in 4G.\n"
    "Serves until SIGINT or SIGTERM, then prints its last state. Programs that still use its memory end with an "
    "error message.\n\n"
    "Examples:\n"
    "  farside serve --memory 4G --listen 127.0.0.1:7170\n"
    "  farside serve --memory 64G --listen 0.0.0.0:7170 --token-file secret --quota 8G --metrics 127.0.0.1:9170\n"
    "  farside serve --memory 4G --unix $PWD/farside.sock\n"
    "  farside serve --memory 64G --listen 0.0.0.0:7170 --token-file secret --tls cert=cert.pem,key=key.pem\n"
    "A pool (docs/guide/pool.md):\n"
    "  farside serve --controller --listen 10.0.0.1:7100 --tokens tokens\n"
    "  farside serve --memory 64G --listen 10.0.0.2:7170 --pool 10.0.0.1:7100 --tokens tokens";

void add_memory_options(Command& command, ServeArguments* to) {
  command
      .add_option("--memory", &to->memory,
                  "memory to lend; more than is free now gives a warning, more than the machine has is refused")
      .value("SIZE");
  command
      .add_option("--overflow", &to->overflow,
                  "folder, or file to be made, and how much of it takes pages for which --memory has no room; with "
                  "--compress")
      .value("PATH:SIZE");
  command.add_option("--listen", &to->listen, "TCP address to serve; port 0: any, which is printed").value("HOST:PORT");
  command.add_option("--unix", &to->unix_path, "Unix socket to serve shared memory on").value("PATH");
  command
      .add_option("--token-file", &to->tokens.single,
                  "file whose first line is the secret that all clients must know, up to 128 bytes")
      .value("FILE");
  command
      .add_option(
          "--tokens", &to->tokens.named,
          "file that names clients and servers with their secrets, quotas and operations; SIGHUP reads it again")
      .value("FILE");
  add_tls_option(command, &to->tls);
  command
      .add_option("--ucx", &to->ucx,
                  "transports of UCX by which clients read and write their memory, as in UCX_TLS; ib: network cards")
      .value("TRANSPORTS");
  command
      .add_option(
          "--compress", &to->compress,
          "how pages that are not used for a second are compressed; auto: by LZ4, and after a minute by zstd; not "
          "with --offload or --ucx")
      .one_of({std::begin(kCompressionNames), std::end(kCompressionNames)});
  command
      .add_option("--quota", &to->quota,
                  "memory that one client may have, a process with its forked children (default: all)")
      .value("SIZE");
}

void add_operation_options(Command& command, ServeArguments* to) {
  command
      .add_option("--metrics", &to->metrics,
                  "HTTP address of the metrics, for Prometheus; port 0: any, which is printed")
      .value("HOST:PORT");
  command.add_option("--log", &to->log, "least severe messages to print: error, warning, info or debug")
      .value("LEVEL")
      .one_of({"error", "warning", "info", "debug"})
      .show_default();
  command.add_option("--log-format", &to->log_format, "form of the messages: text, or json for one object a line")
      .value("FORMAT")
      .one_of({"text", "json"})
      .show_default();
  command.add_option("--workers", &to->workers, "threads that serve").value("N").range(1U, kMaxWorkers).show_default();
  command.add_option("--grace", &to->grace, "seconds for which a region is kept after its connections broke")
      .value("S")
      .non_negative()
      .show_default();
}

void add_offload_options(Command& command, ServeArguments* to) {
  command.add_flag("--offload", &to->offload,
                   "execute functions of clients next to their data, each client's in an isolated process");
  command.add_option("--offload-processes", &to->offload_processes, "calls of a client that are executed at a time")
      .value("N")
      .range(1U, wire::kMaxCallProcesses)
      .show_default();
  command
      .add_option("--offload-memory", &to->offload_memory,
                  "memory that functions may allocate in each process of a client")
      .value("SIZE")
      .show_default();
  command.add_option("--offload-time", &to->offload_seconds, "seconds that a call may take")
      .value("S")
      .non_negative()
      .show_default();
  command.add_option("--offload-cpu", &to->offload_cpu, "seconds of processor time that a call may take")
      .value("S")
      .non_negative()
      .show_default();
  command.add_option("--offload-code", &to->offload_code, "largest program or shared object that a client may send")
      .value("SIZE")
      .show_default();
}

void add_pool_options(Command& command, ServeArguments* to) {
  command.add_flag("--controller", &to->controller,
                   "run a pool's controller, which lists its servers; --memory is optional");
  command.add_option("--pool", &to->pool, "controller of the pool to join: HOST:PORT, or pool+tls://HOST:PORT")
      .value("ADDRESS");
  command
      .add_option("--address", &to->address,
                  "address at which a pool's clients reach this server (default: as --listen)")
      .value("ADDRESS");
  command
      .add_option("--zone", &to->zone,
                  "what fails as one, as a rack; a pool's clients place no two copies of a slab in one zone")
      .value("LABEL");
}

}  // namespace

void add_serve_options(Command& command, ServeArguments* to) {
  add_memory_options(command, to);
  add_operation_options(command, to);
  add_offload_options(command, to);
  add_pool_options(command, to);
  command.set_footer(kHelp);
}

}  // namespace farside::cli
