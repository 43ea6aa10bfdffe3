// farside pool status: lists the memory servers of a pool's controller.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/run_settings.h"
#include "cli/tls_options.h"
#include "remote/controller.h"
#include "report/format.h"

namespace farside::cli {
namespace {

using nlohmann::json;

struct StatusArguments {
  std::string controller, token_file;
  TlsArguments tls;
  bool json = false;
};

std::string name_of(wire::ServerState state) {
  switch (state) {
    case wire::ServerState::kUp:
      return "up";
    case wire::ServerState::kLeaving:
      return "leaving";
    case wire::ServerState::kSilent:
      return "silent";
  }
  return "?";
}

Status ask(const StatusArguments& arguments, wire::ServersReply* servers) {
  ControllerAddress controller;
  if (Status opened = controller.open(arguments.controller, arguments.tls); !opened.ok()) return opened;
  Result<std::string> token = std::string();
  if (!arguments.token_file.empty()) token = read_token_file(arguments.token_file);
  if (!token.ok()) return token.status();
  return remote::list_servers(controller.endpoint(), token->c_str(), servers);
}

json to_json(std::span<const wire::ServerEntry> servers) {
  json rows = json::array();
  for (const wire::ServerEntry& server : servers) {
    const wire::ServerReport& r = server.report;
    rows.push_back({{"address", r.address},
                    {"state", name_of(server.state)},
                    {"lent_bytes", r.lent},
                    {"reserved_bytes", r.reserved},
                    {"stored_bytes", r.stored},
                    {"clients", r.clients},
                    {"silent_ms", server.silent_ms}});
  }
  return {{"servers", rows}};
}

std::string to_text(std::span<const wire::ServerEntry> servers) {
  if (servers.empty()) return "no server has joined; start one with farside serve --pool\n";
  std::vector<std::vector<std::string>> rows = {{"server", "state", "lent", "reserved", "stored", "clients"}};
  wire::ServerReport all = {};
  for (const wire::ServerEntry& server : servers) {
    const wire::ServerReport& r = server.report;
    rows.push_back({r.address, name_of(server.state), format_size(r.lent), format_size(r.reserved),
                    format_size(r.stored), std::to_string(r.clients)});
    all.lent += r.lent;
    all.reserved += r.reserved;
    all.stored += r.stored;
    all.clients += r.clients;
  }
  rows.push_back({"all", "", format_size(all.lent), format_size(all.reserved), format_size(all.stored),
                  std::to_string(all.clients)});
  return format_table(rows);
}

int show_status(StatusArguments& arguments) {
  if (Status read = arguments.tls.read(); !read.ok()) return fail(read, kExitUsage);
  if (arguments.tls.verify_clients)
    return fail(Status::error(EINVAL, "--tls verify-clients is for farside serve"), kExitUsage);
  auto reply = std::make_unique<wire::ServersReply>();
  Status asked = ask(arguments, reply.get());
  if (!asked.ok()) return fail(asked);
  std::span<const wire::ServerEntry> servers(reply->servers, reply->count);
  fputs(arguments.json ? (to_json(servers).dump(2) + "\n").c_str() : to_text(servers).c_str(), stdout);
  return 0;
}

}  // namespace

void add_pool_command(Command& parent) {
  Command& pool = parent.add_command("pool", "Show a pool of memory servers");
  pool.require_command();
  pool.set_footer("Examples:\n  farside pool status --controller 10.0.0.1:7100 --token-file secret");
  Command& command = pool.add_command("status", "List the servers, the memory that they lend, and their state");
  auto arguments = std::make_shared<StatusArguments>();
  command
      .add_option("--controller", &arguments->controller, "the pool's controller: HOST:PORT, or pool+tls://HOST:PORT")
      .required()
      .value("ADDRESS");
  command.add_option("--token-file", &arguments->token_file, "file whose first line is the pool's secret")
      .value("FILE");
  add_tls_option(command, &arguments->tls);
  command.add_flag("--json", &arguments->json, "print JSON");
  command.set_footer(
      "Clients are regions: one for each process that uses the server, and one for each forked child of such a "
      "process.\n\nExample:\n  farside pool status --controller 10.0.0.1:7100 --token-file secret");
  command.set_action([arguments] { return show_status(*arguments); });
}

}  // namespace farside::cli
