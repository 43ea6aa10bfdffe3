// farside pool: lists the memory servers of a pool's controller, closes one to new slabs, and empties one.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/run_settings.h"
#include "cli/tls_options.h"
#include "remote/controller.h"
#include "report/format.h"
#include "wire/codec.h"

namespace farside::cli {
namespace {

using nlohmann::json;

struct PoolArguments {
  std::string controller, token_file;
  TlsArguments tls;
  bool json = false;   // of status
  std::string server;  // of the orders: cordon, drain and uncordon
};

// Calls request(endpoint, token) with the controller. Returns the exit status.
template <typename Request>
int ask(PoolArguments& arguments, Request request) {
  if (Status read = arguments.tls.read(); !read.ok()) return fail(read, kExitUsage);
  if (arguments.tls.verify_clients)
    return fail(Status::error(EINVAL, "--tls verify-clients is for farside serve"), kExitUsage);
  ControllerAddress controller;
  if (Status opened = controller.open(arguments.controller, arguments.tls); !opened.ok()) return fail(opened);
  Result<std::string> token = std::string();
  if (!arguments.token_file.empty()) token = read_token_file(arguments.token_file);
  if (!token.ok()) return fail(token.status());
  Status asked = request(controller.endpoint(), token->c_str());
  return asked.ok() ? 0 : fail(asked);
}

// What the programs of the pool have lost, or have on servers that drain, and not made anew yet.
json to_json(const wire::PoolCopies& copies) {
  bool is_known = copies.left_ms != wire::kUnknownEnd;
  return {{"clients", copies.clients},
          {"degraded_slabs", copies.degraded},
          {"repaired_slabs", copies.repaired},
          {"seconds_left", is_known ? json(static_cast<double>(copies.left_ms) / 1e3) : json()}};
}

std::string to_text(const wire::PoolCopies& copies) {
  if (copies.clients == 0) return "";
  std::string end = copies.left_ms == wire::kUnknownEnd
                        ? "some of them need a server with free memory"
                        : fmt::format("complete in about {} s", copies.left_ms / 1000 + 1);
  return fmt::format(
      "{} slabs of {} clients have fewer copies than --replicas on servers that stay, or several in one zone, {} "
      "copies were made; {}\n",
      copies.degraded, copies.clients, copies.repaired, end);
}

json to_json(std::span<const wire::ServerEntry> servers) {
  json rows = json::array();
  for (const wire::ServerEntry& server : servers) {
    const wire::ServerReport& r = server.report;
    rows.push_back({{"address", r.address},
                    {"state", wire::name_of(server.state)},
                    {"zone", r.zone},
                    {"lent_bytes", r.lent},
                    {"reserved_bytes", r.reserved},
                    {"stored_bytes", r.stored},
                    {"clients", r.clients},
                    {"silent_ms", server.silent_ms}});
  }
  return rows;
}

std::string to_text(std::span<const wire::ServerEntry> servers) {
  if (servers.empty()) return "no server has joined; start one with farside serve --pool\n";
  std::vector<std::vector<std::string>> rows = {{"server", "state", "zone", "lent", "reserved", "stored", "clients"}};
  wire::ServerReport all = {};
  for (const wire::ServerEntry& server : servers) {
    const wire::ServerReport& r = server.report;
    rows.push_back({r.address, wire::name_of(server.state), r.zone, format_size(r.lent), format_size(r.reserved),
                    format_size(r.stored), std::to_string(r.clients)});
    all.lent += r.lent;
    all.reserved += r.reserved;
    all.stored += r.stored;
    all.clients += r.clients;
  }
  rows.push_back({"all", "", "", format_size(all.lent), format_size(all.reserved), format_size(all.stored),
                  std::to_string(all.clients)});
  return format_table(rows);
}

// Whether the other servers have room for what is reserved on this one.
Status check_room(std::span<const wire::ServerEntry> servers, const std::string& drained) {
  uint64_t reserved = 0, room = 0;
  for (const wire::ServerEntry& server : servers) {
    const wire::ServerReport& r = server.report;
    if (r.address == drained) reserved = r.reserved;
    else if (server.state == wire::ServerState::kUp) room += r.lent - std::min(r.lent, r.reserved);
  }
  if (reserved <= room) return {};
  return Status::error(ENOSPC,
                       "programs have reserved {} on {}, and the other servers that are up have room for {}; start one "
                       "more with farside serve --pool, or end programs",
                       format_size(reserved), drained, format_size(room));
}

int list(PoolArguments& arguments, wire::ServersReply* reply) {
  return ask(arguments, [&](const transport::Endpoint& controller, const char* token) {
    return remote::list_servers(controller, token, reply);
  });
}

int show_status(PoolArguments& arguments) {
  auto reply = std::make_unique<wire::ServersReply>();
  if (int status = list(arguments, reply.get()); status != 0) return status;
  std::span<const wire::ServerEntry> servers(reply->servers, reply->count);
  json all = {{"servers", to_json(servers)}, {"copies", to_json(reply->copies)}};
  fputs((arguments.json ? all.dump(2) + "\n" : to_text(servers) + to_text(reply->copies)).c_str(), stdout);
  return 0;
}

int give(wire::Order order, PoolArguments& arguments) {
  if (order == wire::Order::kDrain) {
    auto reply = std::make_unique<wire::ServersReply>();
    if (int status = list(arguments, reply.get()); status != 0) return status;
    if (Status room = check_room({reply->servers, reply->count}, arguments.server); !room.ok()) return fail(room);
  }
  return ask(arguments, [&](const transport::Endpoint& controller, const char* token) {
    return remote::order_server(controller, token, arguments.server, order);
  });
}

void add_controller_options(Command& command, PoolArguments* arguments) {
  command
      .add_option("--controller", &arguments->controller, "the pool's controller: HOST:PORT, or pool+tls://HOST:PORT")
      .required()
      .value("ADDRESS");
  command.add_option("--token-file", &arguments->token_file, "file whose first line is the pool's secret")
      .value("FILE");
  add_tls_option(command, &arguments->tls);
}

void add_status_command(Command& pool) {
  Command& command = pool.add_command("status", "List the servers, the memory that they lend, and their state");
  auto arguments = std::make_shared<PoolArguments>();
  add_controller_options(command, arguments.get());
  command.add_flag("--json", &arguments->json, "print JSON");
  command.set_footer(
      "Clients are regions: one for each process that uses the server, and one for each forked child of such a "
      "process.\n\nExample:\n  farside pool status --controller 10.0.0.1:7100 --token-file secret");
  command.set_action([arguments] { return show_status(*arguments); });
}

void add_order_command(Command& pool, const std::string& name, const std::string& help, wire::Order order) {
  Command& command = pool.add_command(name, help);
  auto arguments = std::make_shared<PoolArguments>();
  command.add_option("server", &arguments->server, "the server's address, as farside pool status shows it").required();
  add_controller_options(command, arguments.get());
  command.set_footer(
      "The token needs the right to operate: allow=operate in its line of the controller's --tokens.\n\nExample:\n"
      "  farside pool " +
      name + " tcp://10.0.0.2:7170 --controller 10.0.0.1:7100 --token-file operator.secret");
  command.set_action([arguments, order] { return give(order, *arguments); });
}

}  // namespace

void add_pool_command(Command& parent) {
  Command& pool =
      parent.add_command("pool", "Show a pool of memory servers, close servers to new data, and empty them");
  pool.require_command();
  pool.set_footer("Examples:\n  farside pool status --controller 10.0.0.1:7100 --token-file secret");
  add_status_command(pool);
  add_order_command(pool, "cordon", "Place no new slabs on a server; programs keep those that are there",
                    wire::Order::kCordon);
  add_order_command(pool, "drain", "Likewise, and have programs move those that are there to other servers",
                    wire::Order::kDrain);
  add_order_command(pool, "uncordon", "Place new slabs on a server again, and move none away", wire::Order::kNone);
}

}  // namespace farside::cli
