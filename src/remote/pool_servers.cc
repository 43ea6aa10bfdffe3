#include "remote/pool_servers.h"

#include <bit>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"

namespace farside::remote {
namespace {

constexpr uint64_t kReturnAfterNs = 5'000'000'000;

}  // namespace

void PoolServers::add(std::unique_ptr<ServerStore> server) {
  servers_[count()] = std::move(server);
  count_.fetch_add(1, std::memory_order_release);
}

ServerSet PoolServers::find(const char* address) const {
  for (unsigned s = 0; s < count(); s++) {
    bool is_lost = (lost() & only(s)) != 0;
    if (!is_lost && strcmp(servers_[s]->address(), address) == 0) return only(s);
  }
  return 0;
}

bool PoolServers::knows(const char* address) const {
  bool found = false;
  for_each(all() & ~left(), [&](unsigned s) { found |= strcmp(servers_[s]->address(), address) == 0; });
  return found;
}

bool PoolServers::may_return(unsigned server, uint64_t now) const {
  const char* address = servers_[server]->address();
  uint64_t wait = kReturnAfterNs;
  for (unsigned s = 0; s < count(); s++) {
    if (strcmp(servers_[s]->address(), address) != 0) continue;
    if (s > server || !(lost() & only(s))) return false;  // it was added again
    if (s < server) wait *= 2;
  }
  return count() < kMaxServers && now > lost_ns_[server].load(std::memory_order_relaxed) + wait;
}

bool PoolServers::is_degraded(uint64_t slab) const {
  ServerSet holders = table_.holders(slab);
  return holders != 0 && static_cast<unsigned>(std::popcount(holders & staying())) < replicas_;
}

uint64_t PoolServers::degraded() const {
  uint64_t slabs = 0;
  for (uint64_t slab = 0; slab < table_.end(); slab++) slabs += is_degraded(slab);
  return slabs;
}

void PoolServers::close_channel(unsigned server, transport::Channel* channel) {
  if (lost() & only(server)) delete channel;
  else servers_[server]->close_channel(channel);
}

// Slabs without holder read as zeros on every server.
ServerSet PoolServers::call_holders(uint64_t far, uint64_t bytes, bool written) const {
  ServerSet all = usable();
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t) {
    SlabServers servers = table_.servers(slab);
    ServerSet holders = servers.holders;
    if (written && (replicas_ > 1 || std::popcount(servers.all()) != 1)) all = 0;
    if (holders != 0) all &= holders;
  });
  return all;
}

unsigned PoolServers::reader_of(uint64_t slab, ServerSet holders) const {
  unsigned mapped = kMaxServers;
  for_each(holders, [&](unsigned s) {
    if (mapped == kMaxServers && servers_[s]->mapped()) mapped = s;
  });
  if (mapped != kMaxServers) return mapped;
  // Slab by slab in turn, so that all replicas share the work and neighbouring pages are read from the same server.
  for (auto skip = slab % static_cast<unsigned>(std::popcount(holders)); skip > 0; skip--) holders &= holders - 1;
  return static_cast<unsigned>(std::countr_zero(holders));
}

void PoolServers::lose(unsigned server, const char* reason) {
  if (lost_.fetch_or(only(server), std::memory_order_acq_rel) & only(server)) return;
  lost_ns_[server].store(now_ns(), std::memory_order_relaxed);
  failed_.store(server, std::memory_order_relaxed);
  servers_[server]->keep_failure(reason);
  int left = std::popcount(usable());
  if (left == 0) return;  // fail_request reports it
  log(LogLevel::kWarning, "{}; {} of {} {} left{}", servers_[server]->failure().text(), left, count(),
      replicas_ >= count() ? "replicas" : "servers",
      replicas_ > 1 ? ""
                    : "; the program ends when it accesses data that was stored there (--replicas 2 keeps copies)");
}

int PoolServers::fail_request(int error) const {
  if (on_failure_) on_failure_(servers_[failed_.load(std::memory_order_relaxed)]->failure());
  return error;
}

void PoolServers::leave(unsigned server) {
  left_.fetch_or(only(server), std::memory_order_acq_rel);
  lost_.fetch_or(only(server), std::memory_order_acq_rel);
  servers_[server]->leave();
  log(LogLevel::kWarning, "memory server {} drains, and has nothing of this program any more",
      servers_[server]->address());
}

// A mapping exists only if each page is on all servers: then each of them holds every slab. The number of servers is
// read once, since one that is added meanwhile holds nothing.
transport::Mapping PoolServers::mapping() const {
  transport::Mapping mapping;
  unsigned servers = count();
  if (may_grow_ || replicas_ < servers) return mapping;
  for_each((only(servers) - 1) & ~lost(), [&](unsigned s) {
    const transport::ShmRegion* region = servers_[s]->mapped();
    if (!mapping.base && region && region->mapping().immediate) mapping = region->mapping();
  });
  return mapping;
}

bool PoolServers::owns_fd(int fd) const {
  for (unsigned s = 0; s < count(); s++) {
    if (servers_[s]->owns_fd(fd)) return true;
  }
  return false;
}

bool PoolServers::all_slabs_within(ServerSet servers) const {
  for (uint64_t slab = 0; slab < table_.end(); slab++) {
    ServerSet holders = table_.holders(slab);
    if (holders != 0 && (holders & servers) == 0) return false;
  }
  return true;
}

}  // namespace farside::remote
