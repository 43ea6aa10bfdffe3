#include "remote/pool_store.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "remote/controller.h"
#include "remote/pool_channel.h"

namespace farside::remote {
namespace {

constexpr uint64_t kRefreshRetryNs = 30'000'000'000;
constexpr uint64_t kReportEveryNs = 1'000'000'000;
// For each round trip to a controller or server while a lost server is looked for: a fork waits for as long.
constexpr uint64_t kLookTimeoutNs = 400'000'000;

struct ServerList : NearObject, wire::ServersReply {  // too large for small stacks
  // Null: it is not listed, or not up.
  const wire::ServerReport* find_up(const char* address) const {
    const wire::ServerEntry* found = std::find_if(servers, servers + count, [&](const wire::ServerEntry& entry) {
      return entry.state == wire::ServerState::kUp && strcmp(entry.report.address, address) == 0;
    });
    return found == servers + count ? nullptr : &found->report;
  }
};

}  // namespace

Result<std::unique_ptr<RemoteStore>> PoolStore::connect(const StoreConfig& config) {
  size_t token_bytes = config.token ? strlen(config.token) : 0;
  if (token_bytes > wire::kMaxToken) return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  if (strlen(config.address) >= sizeof address_)
    return Status::error(EINVAL, "the list of memory servers is longer than {} bytes", sizeof address_ - 1);
  std::unique_ptr<PoolStore> store(new PoolStore(config));
  LockGuard hold(store->placement_.lock());
  Status added = strchr(config.address, ',') ? Status() : store->parse(config.address, &store->controller_);
  if (added.ok() && store->controller_.is_pool) {
    added = check_plain_text(store->controller_, config.plain_text);
    store->servers_.note_growth();
  }
  if (added.ok())
    added = store->controller_.is_pool ? store->add_from_controller() : store->add_listed(config.all_needed);
  if (added.ok() && store->servers_.count() < config.replicas) {
    Status few = Status::error(EINVAL, "{} replicas require as many memory servers, but {} has {}", config.replicas,
                               config.address, store->servers_.count());
    if (config.all_needed) added = few;
    else log(LogLevel::kWarning, "{}; continuing with fewer copies", few.text());
  }
  if (!added.ok()) return added;
  return std::unique_ptr<RemoteStore>(std::move(store));
}

// Unless all are needed, servers that cannot be reached are left out: a process that starts after the loss of a replica
// works without it, as the processes before it do.
Status PoolStore::add_listed(bool all_needed) {
  Status missing;
  for (std::string_view rest = address_; !rest.empty();) {
    size_t end = std::min(rest.find(','), rest.size());
    Status added = add_server(rest.substr(0, end));
    if (!added.ok() && (all_needed || servers_.replicas() == 1)) return added;
    if (!added.ok()) missing = added;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return servers_.count() > 0 ? Status() : missing;
}

// Servers that cannot be reached are left out: the controller's list may be out of date by some seconds.
Status PoolStore::add_from_controller() {
  std::unique_ptr<ServerList> known(new ServerList);
  Status listed = list_servers(controller_.endpoint, token_, known.get());
  if (!listed.ok()) return listed;
  Status added;
  ServerSet up = 0;
  for (const wire::ServerEntry& entry : std::span(known->servers, known->count)) {
    if (entry.state != wire::ServerState::kUp) continue;
    const char* address = entry.report.address;
    if (!servers_.knows(address) && servers_.has_number(address)) {
      if (Status s = add_server(address, entry.report.zone); !s.ok()) added = s;
    }
    up |= servers_.find(address);
  }
  placement_.close_to_new_slabs(servers_.usable() & ~up);
  if (servers_.count() > 0) return {};
  if (!added.ok()) return added;
  if (known->count > 0)
    return Status::error(ENOENT, "controller {} lists no memory server that takes new data; see 'farside pool status'",
                         controller_.endpoint.name);
  return Status::error(ENOENT, "controller {} lists no memory server; start one with 'farside serve --pool'",
                       controller_.endpoint.name);
}

PoolStore::PoolStore(const StoreConfig& config)
    : retry_(config.retry),
      plain_text_(config.plain_text),
      servers_(config),
      placement_(&servers_),
      repair_(
          &servers_, &placement_, [](void* store) { static_cast<PoolStore*>(store)->tend(); }, this),
      client_number_(random_u64() | 1) {
  strcpy(address_, config.address);
  strcpy(token_, config.token ? config.token : "");
  if (config.relays.tls) strncpy(tls_relay_, config.relays.tls, sizeof tls_relay_ - 1);
  if (config.relays.ucx) strncpy(ucx_relay_, config.relays.ucx, sizeof ucx_relay_ - 1);
}

PoolStore::~PoolStore() = default;

Status PoolStore::add_server(std::string_view address, std::string_view zone) {
  Address parsed;
  if (Status s = parse(address, &parsed); !s.ok()) return s;
  if (parsed.is_file())
    return Status::error(EINVAL, "--far names the far file {}, which cannot be combined with servers or --replicas",
                         parsed.endpoint.name);
  if (parsed.is_pool)
    return Status::error(EINVAL, "{} is a controller; it cannot be combined with other servers", parsed.endpoint.name);
  if (!servers_.has_number(parsed.endpoint.name))
    return Status::error(EINVAL, "--far names more than {} memory servers", kMaxServers);
  auto server = connect_server(parsed, transport::kDialTimeoutNs);
  if (!server.ok()) return server.status();
  if (const ServerStore* same = servers_.find_same(**server)) {
    return Status::error(EINVAL,
                         "{} and {} are one memory server, whose failure would lose every copy of what it stores; name "
                         "each server once",
                         same->address(), parsed.endpoint.name);
  }
  servers_.add(std::move(*server), zone);
  return {};
}

Result<std::unique_ptr<ServerStore>> PoolStore::connect_server(const Address& address, uint64_t timeout_ns) {
  return ServerStore::connect(address, {.address = address.endpoint.name,
                                        .token = token_,
                                        .region_bytes = servers_.region_bytes(),
                                        .retry = retry_,
                                        .plain_text = plain_text_,
                                        .dial_timeout_ns = timeout_ns});
}

void PoolStore::tend() {
  if (servers_.lost() != 0) look_for_servers();
  if (!controller_.is_pool || now_ns() < next_report_ns_) return;
  RepairStatus status = repair_.status();
  report_copies(status);
  if (status.degraded > 0 && status.seconds_left < 0) look_for_new_server();
}

// As long as copies are missing, and once when none is any more.
void PoolStore::report_copies(const RepairStatus& status) {
  next_report_ns_ = now_ns() + kReportEveryNs;
  if (status.degraded == 0 && !lacks_copies_) return;
  uint64_t left_ms = status.seconds_left < 0 ? wire::kUnknownEnd : static_cast<uint64_t>(status.seconds_left * 1e3);
  wire::CopiesReport report = {client_number_, status.degraded, status.repaired, left_ms};
  if (remote::report_copies(controller_.endpoint, token_, report, kLookTimeoutNs).ok())
    lacks_copies_ = status.degraded > 0;
  else next_report_ns_ = now_ns() + kRefreshRetryNs;
}

// One server at a time: the others have their turn at the next call. Called by the thread of the repair, so no host
// name is resolved.
void PoolStore::look_for_servers() {
  uint64_t now = now_ns();
  ServerSet may_return = 0;
  for_each(servers_.lost() & ~servers_.left(),
           [&](unsigned s) { may_return |= servers_.may_return(s, now) ? only(s) : 0; });
  if (may_return == 0) return;
  auto server = static_cast<unsigned>(std::countr_zero(may_return));
  if (!add_again(servers_[server])) servers_.delay_return(server, now_ns());
}

// Whether it is worth trying: in a pool, where the controller lists it as up, and its zone.
bool PoolStore::is_up(const char* address, char* zone) const {
  if (!controller_.is_pool) return true;
  std::unique_ptr<ServerList> list(new ServerList);
  if (!list_servers(controller_.endpoint, token_, list.get(), kLookTimeoutNs).ok()) return false;
  const wire::ServerReport* found = list->find_up(address);
  if (found) strcpy(zone, found->zone);
  return found != nullptr;
}

bool PoolStore::add_again(const ServerStore& lost) {
  char zone[wire::kZoneBytes] = {};
  if (!is_up(lost.address(), zone)) return false;
  if (!add_connected(connect_server(lost.parsed_address(), kLookTimeoutNs), zone)) return false;
  log(LogLevel::kWarning, "memory server {} is used again, from empty", lost.address());
  return true;
}

// Another thread that reserves memory may have added it meanwhile.
bool PoolStore::add_connected(Result<std::unique_ptr<ServerStore>> server, std::string_view zone) {
  if (!server.ok()) return false;
  LockGuard hold(placement_.lock());
  const char* address = (*server)->address();
  if (servers_.find(address) != 0 || servers_.find_same(**server) || !servers_.has_number(address)) return false;
  servers_.add(std::move(*server), zone);
  return true;
}

// No copy is being made: tries one server that has joined the pool since the program last reserved memory. The next
// call tries the next one.
void PoolStore::look_for_new_server() {
  std::unique_ptr<ServerList> list(new ServerList);
  if (!list_servers(controller_.endpoint, token_, list.get(), kLookTimeoutNs).ok()) return;
  for (uint32_t i = 0; i < list->count; i++) {
    const wire::ServerEntry& entry = list->servers[next_candidate_++ % list->count];
    const char* address = entry.report.address;
    if (entry.state != wire::ServerState::kUp || servers_.knows(address) || !servers_.has_number(address)) continue;
    Address parsed;
    if (!parse(address, &parsed, HostNames::kRefused).ok()) continue;
    add_connected(connect_server(parsed, kLookTimeoutNs), entry.report.zone);
    return;
  }
}

// The caller keeps the server.
ServerStore* PoolStore::call_server(unsigned i) {
  SignalsBlocked blocked;
  LockGuard hold(placement_.lock());
  servers_.keep_numbers();
  return i < servers_.count() ? &servers_[i] : nullptr;
}

void PoolStore::begin_call(uint64_t far, uint64_t bytes, bool written) {
  servers_.calls().begin(far, bytes);
  if (written) servers_.writes().begin(far, bytes);
}

void PoolStore::end_call(uint64_t far, uint64_t bytes, bool written) {
  if (written) servers_.writes().end(far, bytes);
  servers_.calls().end(far, bytes);
}

void PoolStore::start_threads() {
  if (has_threads()) repair_.start();
}

Status PoolStore::parse(std::string_view address, Address* out, HostNames names) const {
  char text[sizeof(transport::Endpoint::name)] = {};
  if (address.size() >= sizeof text)
    return Status::error(EINVAL, "an address in --far is longer than {} bytes", sizeof text - 1);
  memcpy(text, address.data(), address.size());
  Result<Address> parsed = parse_address(text, {tls_relay_, ucx_relay_}, names);
  if (parsed.ok()) *out = *parsed;
  return parsed.status();
}

void PoolStore::refresh_servers() {
  if (!controller_.is_pool || now_ns() < next_refresh_ns_) return;
  Status refreshed = add_from_controller();
  if (refreshed.ok()) return;
  next_refresh_ns_ = now_ns() + kRefreshRetryNs;
  log(LogLevel::kDebug, "{}", refreshed.text());
}

transport::Channel* PoolStore::open_channel(Status* status) {
  if (servers_.usable() != 0) return new PoolChannel(&servers_, &placement_);
  *status = Status::error(ECONNRESET, "all memory servers of {} are lost", address_);
  return nullptr;
}

Status PoolStore::grow(uint64_t bytes) {
  LockGuard hold(placement_.lock());
  refresh_servers();
  return placement_.reserve(bytes / kSlabBytes);
}

void PoolStore::shrink(uint64_t bytes) {
  LockGuard hold(placement_.lock());
  placement_.shrink(bytes);
}

Status PoolStore::claim(uint64_t far, uint64_t bytes) {
  LockGuard hold(placement_.lock());
  return placement_.claim(far, bytes);
}

void PoolStore::unclaim(uint64_t far, uint64_t bytes) {
  LockGuard hold(placement_.lock());
  placement_.unclaim(far, bytes);
}

// The child works without the servers that fail to make a snapshot, if the others hold all slabs.
Result<ForkTicket> PoolStore::prepare_fork() {
  repair_.pause();
  ForkTicket ticket;
  ServerSet got = 0;
  Status failed = Status::error(ECONNRESET, "all memory servers of {} are lost", address_);
  for_each(servers_.usable(), [&](unsigned s) {
    Result<Snapshot> made = servers_[s].snapshot();
    if (!made.ok()) {
      failed = made.status();
      return;
    }
    ticket.of[s] = *made;
    got |= only(s);
  });
  if (got != 0 && servers_.all_slabs_within(got)) return ticket;
  forked_in_parent(ticket);
  return failed;
}

void PoolStore::forked_in_parent(ForkTicket ticket) {
  for (unsigned s = 0; s < servers_.count(); s++) servers_[s].close_snapshot(ticket.of[s]);
  repair_.resume();
}

Status PoolStore::adopt_in_child(ForkTicket ticket) {
  new (&placement_.lock()) Mutex;  // another thread may have held it at the fork
  repair_.reset_in_child();
  servers_.calls().reset_in_child();
  servers_.reset_in_child();
  client_number_ = random_u64() | 1;
  lacks_copies_ = false;
  Status adopted = Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  for (unsigned s = 0; s < servers_.count(); s++) {
    Status one = servers_[s].adopt(ticket.of[s]);
    if (one.ok()) adopted = {};
    else servers_.lose_in_child(s);
  }
  return adopted;
}

}  // namespace farside::remote
