#include "server/registry.h"

#include <algorithm>
#include <cerrno>

namespace farside::server {
namespace {

uint64_t silence(uint64_t now, uint64_t reported_ns) { return now > reported_ns ? now - reported_ns : 0; }

wire::ServerState state_of(const wire::ServerReport& report, uint64_t silent_ns) {
  if (silent_ns >= Registry::kSilentAfterNs) return wire::ServerState::kSilent;
  if (report.leaving) return wire::ServerState::kLeaving;
  if (report.order == wire::Order::kDrain) return wire::ServerState::kDraining;
  return report.order == wire::Order::kCordon ? wire::ServerState::kCordoned : wire::ServerState::kUp;
}

}  // namespace

int MemoryRegistry::report(const wire::ServerReport& report, uint64_t now, wire::RegisterReply* reply) {
  LockGuard hold(mutex_);
  forget_silent(now);
  auto known = servers_.find(report.address);
  bool is_new = known == servers_.end();
  if (is_new && servers_.size() >= wire::kMaxPoolServers) return -ENOSPC;
  reply->order = is_new ? report.order : known->second.report.order;
  Reported& entry = servers_[report.address];
  entry = {report, now};
  entry.report.order = reply->order;
  return 0;
}

int MemoryRegistry::order(const std::string& address, wire::Order order, uint64_t now) {
  LockGuard hold(mutex_);
  forget_silent(now);
  auto known = servers_.find(address);
  if (known == servers_.end()) return -ENOENT;
  known->second.report.order = order;
  return 0;
}

std::vector<wire::ServerEntry> MemoryRegistry::servers(uint64_t now) {
  LockGuard hold(mutex_);
  forget_silent(now);
  std::vector<wire::ServerEntry> entries;
  for (const auto& [address, server] : servers_) {
    uint64_t silent = silence(now, server.reported_ns);
    entries.push_back({server.report, state_of(server.report, silent), static_cast<uint32_t>(silent / 1'000'000)});
  }
  return entries;
}

int MemoryRegistry::report_copies(const wire::CopiesReport& report, uint64_t now) {
  LockGuard hold(mutex_);
  forget_silent_clients(now);
  if (report.degraded == 0) {
    clients_.erase(report.client);
    return 0;
  }
  if (!clients_.contains(report.client) && clients_.size() >= kMaxClients) return -ENOSPC;
  clients_[report.client] = {report, now};
  return 0;
}

wire::PoolCopies MemoryRegistry::copies(uint64_t now) {
  LockGuard hold(mutex_);
  forget_silent_clients(now);
  wire::PoolCopies all = {};
  for (const auto& [client, reported] : clients_) {
    all.clients++;
    all.degraded += reported.report.degraded;
    all.repaired += reported.report.repaired;
    all.left_ms = std::max(all.left_ms, reported.report.left_ms);
  }
  return all;
}

void MemoryRegistry::forget_silent_clients(uint64_t now) {
  std::erase_if(clients_,
                [now](const auto& entry) { return silence(now, entry.second.reported_ns) >= kSilentAfterNs; });
}

void MemoryRegistry::forget_silent(uint64_t now) {
  std::erase_if(servers_, [now](const auto& entry) {
    const Reported& server = entry.second;
    return silence(now, server.reported_ns) >= (server.report.leaving ? kLeftAfterNs : kForgetAfterNs);
  });
}

}  // namespace farside::server
