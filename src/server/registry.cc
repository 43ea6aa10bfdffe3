#include "server/registry.h"

#include <cerrno>

namespace farside::server {
namespace {

uint64_t silence(uint64_t now, uint64_t reported_ns) { return now > reported_ns ? now - reported_ns : 0; }

wire::ServerState state_of(const wire::ServerReport& report, uint64_t silent_ns) {
  if (silent_ns >= Registry::kSilentAfterNs) return wire::ServerState::kSilent;
  if (report.leaving) return wire::ServerState::kLeaving;
  return report.cordoned ? wire::ServerState::kCordoned : wire::ServerState::kUp;
}

}  // namespace

int MemoryRegistry::report(const wire::ServerReport& report, uint64_t now, wire::RegisterReply* reply) {
  LockGuard hold(mutex_);
  forget_silent(now);
  auto known = servers_.find(report.address);
  bool is_new = known == servers_.end();
  if (is_new && servers_.size() >= wire::kMaxPoolServers) return -ENOSPC;
  reply->cordoned = is_new ? report.cordoned : known->second.report.cordoned;
  Reported& entry = servers_[report.address];
  entry = {report, now};
  entry.report.cordoned = reply->cordoned;
  return 0;
}

int MemoryRegistry::cordon(const std::string& address, bool cordoned, uint64_t now) {
  LockGuard hold(mutex_);
  forget_silent(now);
  auto known = servers_.find(address);
  if (known == servers_.end()) return -ENOENT;
  known->second.report.cordoned = cordoned;
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

void MemoryRegistry::forget_silent(uint64_t now) {
  std::erase_if(servers_, [now](const auto& entry) {
    const Reported& server = entry.second;
    return silence(now, server.reported_ns) >= (server.report.leaving ? kLeftAfterNs : kForgetAfterNs);
  });
}

}  // namespace farside::server
