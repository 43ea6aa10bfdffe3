#include "remote/pool_store.h"

#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "base/clock.h"
#include "base/size.h"
#include "remote/controller.h"
#include "remote/pool_channel.h"

namespace farside::remote {
namespace {

constexpr uint64_t kSlabsAhead = 4;  // reserved together when a claim needs a slab and none is reserved
constexpr uint64_t kRefreshRetryNs = 30'000'000'000;

// Calls visit(server) for each of the set.
template <typename Visit>
void for_each(ServerSet set, Visit visit) {
  for (; set != 0; set &= set - 1) visit(static_cast<unsigned>(std::countr_zero(set)));
}

// Calls visit(slab, bytes) for each slab of a range, with the number of its bytes that are in the range.
template <typename Visit>
void for_each_slab(uint64_t far, uint64_t bytes, Visit visit) {
  for (uint64_t step; bytes > 0; far += step, bytes -= step) {
    step = SlabTable::bytes_in_slab(far, bytes);
    visit(SlabTable::slab_of(far), step);
  }
}

}  // namespace

Result<std::unique_ptr<RemoteStore>> PoolStore::connect(const StoreConfig& config) {
  size_t token_bytes = config.token ? strlen(config.token) : 0;
  if (token_bytes > wire::kMaxToken) return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  if (strlen(config.address) >= sizeof address_)
    return Status::error(EINVAL, "the list of memory servers is longer than {} bytes", sizeof address_ - 1);
  std::unique_ptr<PoolStore> store(new PoolStore(config));
  LockGuard hold(store->lock_);
  Status added = strchr(config.address, ',') ? Status() : store->parse(config.address, &store->controller_);
  if (added.ok() && store->controller_.is_pool) added = check_plain_text(store->controller_, config.plain_text);
  if (added.ok())
    added = store->controller_.is_pool ? store->add_from_controller() : store->add_listed(config.all_needed);
  if (added.ok() && store->count() < config.replicas) {
    Status few = Status::error(EINVAL, "{} replicas require as many memory servers, but {} has {}", config.replicas,
                               config.address, store->count());
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
    if (!added.ok() && (all_needed || replicas_ == 1)) return added;
    if (!added.ok()) missing = added;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return count() > 0 ? Status() : missing;
}

// Servers that cannot be reached are left out: the controller's list may be out of date by some seconds.
Status PoolStore::add_from_controller() {
  struct Known : NearObject, wire::ServersReply {};  // too large for small stacks
  std::unique_ptr<Known> known(new Known);
  Status listed = list_servers(controller_.endpoint, token_, known.get());
  if (!listed.ok()) return listed;
  Status added;
  ServerSet up = 0;
  for (const wire::ServerEntry& entry : std::span(known->servers, known->count)) {
    if (entry.state != wire::ServerState::kUp) continue;
    const char* address = entry.report.address;
    if (find(address) == 0 && count() < kMaxServers) {
      if (Status s = add_server(address); !s.ok()) added = s;
    }
    up |= find(address);
  }
  close_to_new_slabs(((ServerSet{1} << count()) - 1) & ~up);
  if (count() > 0) return {};
  if (!added.ok()) return added;
  return Status::error(ENOENT, "controller {} lists no memory server; start one with 'farside serve --pool'",
                       controller_.endpoint.name);
}

PoolStore::PoolStore(const StoreConfig& config)
    : region_bytes_(config.region_bytes),
      replicas_(config.replicas),
      retry_(config.retry),
      plain_text_(config.plain_text),
      table_(config.region_bytes),
      on_failure_(config.on_failure) {
  strcpy(address_, config.address);
  strcpy(token_, config.token ? config.token : "");
  if (config.relays.tls) strncpy(tls_relay_, config.relays.tls, sizeof tls_relay_ - 1);
  if (config.relays.ucx) strncpy(ucx_relay_, config.relays.ucx, sizeof ucx_relay_ - 1);
}

PoolStore::~PoolStore() = default;

Status PoolStore::add_server(std::string_view address) {
  if (count() == kMaxServers) return Status::error(EINVAL, "--far names more than {} memory servers", kMaxServers);
  Address parsed;
  if (Status s = parse(address, &parsed); !s.ok()) return s;
  if (parsed.is_file())
    return Status::error(EINVAL, "--far names the far file {}, which cannot be combined with servers or --replicas",
                         parsed.endpoint.name);
  if (parsed.is_pool)
    return Status::error(EINVAL, "{} is a controller; it cannot be combined with other servers", parsed.endpoint.name);
  if (find(parsed.endpoint.name) != 0) return Status::error(EINVAL, "--far names {} twice", parsed.endpoint.name);
  auto server = ServerStore::connect(parsed, {.address = parsed.endpoint.name,
                                              .token = token_,
                                              .region_bytes = region_bytes_,
                                              .retry = retry_,
                                              .plain_text = plain_text_});
  if (!server.ok()) return server.status();
  servers_[count()] = std::move(*server);
  count_.fetch_add(1, std::memory_order_release);
  return {};
}

Status PoolStore::parse(std::string_view address, Address* out) const {
  char text[sizeof(transport::Endpoint::name)] = {};
  if (address.size() >= sizeof text)
    return Status::error(EINVAL, "an address in --far is longer than {} bytes", sizeof text - 1);
  memcpy(text, address.data(), address.size());
  Result<Address> parsed = parse_address(text, {tls_relay_, ucx_relay_});
  if (parsed.ok()) *out = *parsed;
  return parsed.status();
}

ServerSet PoolStore::find(const char* address) const {
  for (unsigned s = 0; s < count(); s++) {
    if (strcmp(servers_[s]->address(), address) == 0) return only(s);
  }
  return 0;
}

void PoolStore::refresh_servers() {
  if (!controller_.is_pool || now_ns() < next_refresh_ns_) return;
  Status refreshed = add_from_controller();
  if (refreshed.ok()) return;
  next_refresh_ns_ = now_ns() + kRefreshRetryNs;
  log(LogLevel::kDebug, "{}", refreshed.text());
}

// Returns their reserved slabs, so that a server that leaves is empty as soon as its slabs in use are.
void PoolStore::close_to_new_slabs(ServerSet servers) {
  for_each(servers & ~closed_ & usable(), [&](unsigned s) {
    lock_.assert_held();
    if (spare_[s] > 0) servers_[s]->shrink(spare_[s] * kSlabBytes);
    spare_[s] = 0;
  });
  closed_ = servers;
  bool few = static_cast<unsigned>(std::popcount(open())) < replicas_;
  if (few && !warned_few_ && count() >= replicas_) {
    log(LogLevel::kWarning,
        "only {} memory servers accept new slabs: new data has fewer copies than --replicas {} requests",
        std::popcount(open()), replicas_);
  }
  warned_few_ = few;
}

transport::Channel* PoolStore::open_channel(Status* status) {
  if (usable() != 0) return new PoolChannel(this);
  *status = Status::error(ECONNRESET, "all memory servers of {} are lost", address_);
  return nullptr;
}

Status PoolStore::grow(uint64_t bytes) {
  LockGuard hold(lock_);
  refresh_servers();
  return reserve(bytes / kSlabBytes);
}

// Each round starts from the free memory that the servers report. A round fails when a server refuses, because another
// client was faster or a quota is exhausted, or is lost. The next round does without this server.
Status PoolStore::reserve(uint64_t slabs) {
  ServerSet refusing = 0;
  Status refused = Status::error(ENOMEM, "the memory servers are full: {} more require {} servers with free memory",
                                 format_size(slabs * kSlabBytes), std::min<unsigned>(replicas_, count()));
  for (unsigned round = 0; round <= kMaxServers && open() != 0; round++) {
    Slabs room, taken = {};
    read_room(room);
    for_each(refusing, [&](unsigned s) { room[s] = 0; });
    bool planned = true;
    for (uint64_t i = 0; i < slabs && planned; i++) {
      ServerSet chosen = take_most(room);
      planned = chosen != 0;
      for_each(chosen, [&](unsigned s) { taken[s]++; });
    }
    if (!planned) return refused;
    ServerSet refusing_now = 0;
    Status grown = grow_each(taken, &refusing_now);
    if (grown.ok()) return {};
    if (refusing_now != 0) refused = grown;
    refusing |= refusing_now;
  }
  return refused;
}

void PoolStore::read_room(Slabs room) {
  std::fill_n(room, kMaxServers, 0);
  for_each(open(), [&](unsigned s) {
    Result<uint64_t> free = servers_[s]->free_bytes();
    if (free.ok()) room[s] = *free / kSlabBytes;
    else lose(s, "no reply");
  });
}

// Chooses the servers of one slab: those with the most room, as many as there are replicas, or all that are left. 0
// when one of them has no room.
ServerSet PoolStore::take_most(Slabs room) const {
  ServerSet from = open(), chosen = 0;
  auto copies = std::min<unsigned>(replicas_, static_cast<unsigned>(std::popcount(from)));
  for (unsigned i = 0; i < copies; i++) {
    unsigned best = kMaxServers;
    for_each(from & ~chosen, [&](unsigned s) {
      if (best == kMaxServers || room[s] > room[best]) best = s;
    });
    if (room[best] == 0) return 0;
    chosen |= only(best);
  }
  for_each(chosen, [&](unsigned s) { room[s]--; });
  return chosen;
}

// All or nothing.
Status PoolStore::grow_each(const Slabs taken, ServerSet* refusing) {
  for (unsigned s = 0; s < count(); s++) {
    Status grown = taken[s] ? servers_[s]->grow(taken[s] * kSlabBytes) : Status();
    if (grown.ok()) continue;
    if (grown.code() == ECONNRESET) lose(s, "no reply");
    else *refusing |= only(s);
    for (unsigned t = 0; t < s; t++) {
      if (taken[t]) servers_[t]->shrink(taken[t] * kSlabBytes);
    }
    return grown;
  }
  for (unsigned s = 0; s < count(); s++) spare_[s] += taken[s];
  return {};
}

void PoolStore::shrink(uint64_t bytes) {
  LockGuard hold(lock_);
  Slabs given = {};
  for (uint64_t i = 0; i < bytes / kSlabBytes; i++) {
    for_each(take_most(spare_), [&](unsigned s) { given[s]++; });
  }
  for_each(usable(), [&](unsigned s) {
    if (given[s]) servers_[s]->shrink(given[s] * kSlabBytes);
  });
}

Status PoolStore::claim(uint64_t far, uint64_t bytes) {
  LockGuard hold(lock_);
  uint64_t done = 0;
  Status status;
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t part) {
    lock_.assert_held();
    if (status.ok() && table_.holders(slab) == 0) status = place(slab);
    if (!status.ok()) return;
    table_.use(slab, part);
    done += part;
  });
  if (!status.ok()) release(far, done);
  return status;
}

void PoolStore::unclaim(uint64_t far, uint64_t bytes) {
  LockGuard hold(lock_);
  release(far, bytes);
}

void PoolStore::release(uint64_t far, uint64_t bytes) {
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t part) {
    table_.unuse(slab, part);
    if (table_.used(slab) > 0) return;
    for_each(table_.holders(slab) & usable(), [&](unsigned s) {
      lock_.assert_held();
      if (closed_ & only(s)) servers_[s]->shrink(kSlabBytes);
      else spare_[s]++;
    });
    table_.place(slab, 0);
  });
}

Status PoolStore::place(uint64_t slab) {
  if (place_on_reserve(slab) != 0) return {};
  Status more = reserve(kSlabsAhead);
  if (!more.ok()) more = reserve(1);
  if (more.ok() && place_on_reserve(slab) == 0) more = Status::error(ENOMEM, "the memory servers are full");
  return more;
}

ServerSet PoolStore::place_on_reserve(uint64_t slab) {
  ServerSet chosen = take_most(spare_);
  if (chosen != 0) table_.place(slab, chosen);
  return chosen;
}

ServerSet PoolStore::place_unclaimed(uint64_t slab) {
  LockGuard hold(lock_);
  ServerSet placed = table_.holders(slab);
  return placed != 0 ? placed : place_on_reserve(slab);
}

// Slabs without holder read as zeros on every server.
uint32_t PoolStore::call_holders(uint64_t far, uint64_t bytes, bool written) {
  ServerSet all = usable();
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t) {
    ServerSet holders = table_.holders(slab);
    if (written && std::popcount(holders) != 1) all = 0;
    if (holders != 0) all &= holders;
  });
  return all;
}

unsigned PoolStore::reader_of(uint64_t slab, ServerSet holders) const {
  unsigned mapped = kMaxServers;
  for_each(holders, [&](unsigned s) {
    if (mapped == kMaxServers && servers_[s]->mapped()) mapped = s;
  });
  if (mapped != kMaxServers) return mapped;
  // Slab by slab in turn, so that all replicas share the work and neighbouring pages are read from the same server.
  for (auto skip = slab % static_cast<unsigned>(std::popcount(holders)); skip > 0; skip--) holders &= holders - 1;
  return static_cast<unsigned>(std::countr_zero(holders));
}

void PoolStore::lose(unsigned server, const char* reason) {
  if (lost_.fetch_or(only(server), std::memory_order_acq_rel) & only(server)) return;
  failed_.store(server, std::memory_order_relaxed);
  servers_[server]->keep_failure(reason);
  int left = std::popcount(usable());
  if (left == 0) return;  // fail_request reports it
  log(LogLevel::kWarning, "{}; {} of {} {} left{}", servers_[server]->failure().text(), left, count(),
      replicas_ >= count() ? "replicas" : "servers",
      replicas_ > 1 ? ""
                    : "; the program ends when it accesses data that was stored there (--replicas 2 keeps copies)");
}

int PoolStore::fail_request(int error) const {
  if (on_failure_) on_failure_(servers_[failed_.load(std::memory_order_relaxed)]->failure());
  return error;
}

// A mapping exists only if each page is on all servers: then each of them holds every slab.
transport::Mapping PoolStore::mapping() const {
  transport::Mapping mapping;
  if (controller_.is_pool || replicas_ < count()) return mapping;
  for_each(usable(), [&](unsigned s) {
    const transport::ShmRegion* region = servers_[s]->mapped();
    if (!mapping.base && region && !region->is_delayed()) mapping = {region->at(0), true};
  });
  return mapping;
}

bool PoolStore::owns_fd(int fd) const {
  for (unsigned s = 0; s < count(); s++) {
    if (servers_[s]->owns_fd(fd)) return true;
  }
  return false;
}

bool PoolStore::all_slabs_within(ServerSet servers) const {
  for (uint64_t slab = 0; slab < table_.slabs(); slab++) {
    ServerSet holders = table_.holders(slab);
    if (holders != 0 && (holders & servers) == 0) return false;
  }
  return true;
}

// The child works without the servers that fail to make a snapshot, if the others hold all slabs.
Result<ForkTicket> PoolStore::prepare_fork() {
  ForkTicket ticket;
  ServerSet got = 0;
  Status failed = Status::error(ECONNRESET, "all memory servers of {} are lost", address_);
  for_each(usable(), [&](unsigned s) {
    Result<Snapshot> made = servers_[s]->snapshot();
    if (!made.ok()) {
      failed = made.status();
      return;
    }
    ticket.of[s] = *made;
    got |= only(s);
  });
  if (got != 0 && all_slabs_within(got)) return ticket;
  forked_in_parent(ticket);
  return failed;
}

void PoolStore::forked_in_parent(ForkTicket ticket) {
  for (unsigned s = 0; s < count(); s++) servers_[s]->close_snapshot(ticket.of[s]);
}

Status PoolStore::adopt_in_child(ForkTicket ticket) {
  new (&lock_) Mutex;  // another thread may have held it at the fork
  Status adopted = Status::error(ECONNRESET, "this forked process has no snapshot of its parent's far memory");
  for (unsigned s = 0; s < count(); s++) {
    Status one = servers_[s]->adopt(ticket.of[s]);
    if (one.ok()) adopted = {};
    else lost_.fetch_or(only(s));
  }
  return adopted;
}

}  // namespace farside::remote
