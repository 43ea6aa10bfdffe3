#include "server/metrics.h"

#include <algorithm>
#include <map>

#include "base/clock.h"

namespace farside::server {
namespace {

using RegionUsage = MemoryPool::RegionUsage;

struct Sums {
  uint64_t regions = 0, reserved = 0, stored = 0, requests = 0;
  void add(const Sums& other) {
    regions += other.regions;
    reserved += other.reserved;
    stored += other.stored;
    requests += other.requests;
  }
};
using NamedSums = std::vector<std::pair<std::string, Sums>>;

// The largest ones under their names, all others under "other", so that the number of time series is bounded.
NamedSums largest(NamedSums all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::max(a.second.stored, a.second.reserved) > std::max(b.second.stored, b.second.reserved);
  });
  if (all.size() <= kShownRegions) return all;
  Sums other;
  for (size_t i = kShownRegions; i < all.size(); i++) other.add(all[i].second);
  all.resize(kShownRegions);
  all.emplace_back("other", other);
  return all;
}

void append_sums(std::string_view prefix, std::string_view label, const NamedSums& sums, Exposition* out) {
  const struct {
    std::string_view name, type, help;
    uint64_t Sums::*value;
  } metrics[] = {
      {"reserved_bytes", "gauge", "Memory reserved.", &Sums::reserved},
      {"stored_bytes", "gauge", "Memory that stores data.", &Sums::stored},
      {"requests", "gauge", "Requests of the regions that exist.", &Sums::requests},
  };
  for (const auto& metric : metrics) {
    out->begin(fmt::format("{}_{}", prefix, metric.name), metric.type, metric.help);
    for (const auto& [name, sum] : sums) out->sample(sum.*metric.value, {{label, name}});
  }
}

void append_regions(const std::vector<RegionUsage>& regions, Exposition* out) {
  NamedSums by_region;
  std::map<std::string, Sums> by_tenant;
  for (const RegionUsage& r : regions) {
    Sums one = {1, r.reserved, r.stored, r.requests};
    by_region.emplace_back(std::to_string(r.id), one);
    by_tenant[r.source].add(one);
  }
  append_sums("farside_server_region", "region", largest(std::move(by_region)), out);
  NamedSums tenants = largest({by_tenant.begin(), by_tenant.end()});
  append_sums("farside_server_tenant", "tenant", tenants, out);
  out->begin("farside_server_tenant_regions", "gauge", "Regions by tenant, which is the host of their client.");
  for (const auto& [name, sum] : tenants) out->sample(sum.regions, {{"tenant", name}});
}

void append_refusals(const ServerState& server, Exposition* out) {
  const Counters& c = server.counters;
  out->begin("farside_server_refusals_total", "counter", "Connections and requests refused, by reason.");
  const std::pair<const char*, uint64_t> reasons[] = {
      {"token", c.refused_tokens},
      {"protocol", c.bad_frames},
      {"request", c.refused_requests},
      {"connections", server.admission.refused(Admission::Refusal::kTotal)},
      {"source", server.admission.refused(Admission::Refusal::kSource)},
      {"descriptors", server.admission.refused(Admission::Refusal::kDescriptors)},
  };
  for (const auto& [reason, value] : reasons) out->sample(value, {{"reason", reason}});
}

void append_durations(const Counters& counters, Exposition* out) {
  out->begin("farside_server_request_duration_seconds", "histogram",
             "Time to execute a request in the server, by operation.");
  for (size_t op = 1; op < wire::kOps; op++) {
    if (static_cast<wire::Op>(op) == wire::Op::kError) continue;
    out->sample(counters.durations[op].counts(), {{"operation", wire::name_of(static_cast<wire::Op>(op))}});
  }
}

// A controller's view of its pool, on which the state of replicas depends.
void append_pool(Registry* registry, Exposition* out) {
  std::vector<wire::ServerEntry> servers = registry->servers(now_ns());
  std::map<std::string, uint64_t> by_state = {
      {"up", 0}, {"cordoned", 0}, {"draining", 0}, {"leaving", 0}, {"silent", 0}};
  for (const wire::ServerEntry& s : servers) by_state[wire::name_of(s.state)]++;
  out->begin("farside_controller_servers", "gauge", "Servers of the pool, by state.");
  for (const auto& [state, count] : by_state) out->sample(count, {{"state", state}});
  wire::PoolCopies copies = registry->copies(now_ns());
  out->gauge("farside_controller_degraded_clients", "Clients that lack copies of slabs.", copies.clients);
  out->gauge("farside_controller_degraded_slabs", "Slabs of clients with fewer copies than they want.",
             copies.degraded);
  const struct {
    std::string_view name, help;
    uint64_t wire::ServerReport::*value;
  } metrics[] = {
      {"farside_controller_server_capacity_bytes", "Memory that a server lends.", &wire::ServerReport::lent},
      {"farside_controller_server_reserved_bytes", "Memory reserved on a server.", &wire::ServerReport::reserved},
      {"farside_controller_server_stored_bytes", "Memory that stores data on a server.", &wire::ServerReport::stored},
  };
  for (const auto& metric : metrics) {
    out->begin(metric.name, "gauge", metric.help);
    for (const wire::ServerEntry& s : servers) out->sample(s.report.*metric.value, {{"server", s.report.address}});
  }
  out->begin("farside_controller_server_info", "gauge", "1, with the zone of a server.");
  for (const wire::ServerEntry& s : servers) out->sample(1, {{"server", s.report.address}, {"zone", s.report.zone}});
  out->begin("farside_controller_server_report_age_seconds", "gauge", "Time since the last report of a server.");
  for (const wire::ServerEntry& s : servers) out->sample(s.silent_ms / 1e3, {{"server", s.report.address}});
}

}  // namespace

void append_metrics(ServerState* server, Exposition* out) {
  MemoryPool::Usage usage = server->pool.usage();
  const Counters& c = server->counters;
  out->gauge("farside_server_capacity_bytes", "Memory lent to all clients together.", usage.capacity);
  out->gauge("farside_server_reserved_bytes", "Memory reserved by clients.", usage.charged);
  out->gauge("farside_server_stored_bytes", "Memory that stores data of clients.", usage.stored);
  out->gauge("farside_server_used_bytes", "Memory that what is stored uses: less, where pages are compressed.",
             usage.used);
  out->gauge("farside_server_compressed_bytes", "Of what is stored, pages that are compressed.", usage.packed);
  out->gauge("farside_server_zstd_bytes", "Of these, pages that zstd has compressed.", usage.zstd);
  out->gauge("farside_server_overflow_bytes", "Of what is stored, pages in the overflow file.", usage.overflow);
  out->gauge("farside_server_overflow_capacity_bytes", "Size of the overflow file.", usage.overflow_capacity);
  out->gauge("farside_server_overhead_bytes", "Memory that describes what is stored, an upper bound.", usage.overhead);
  out->gauge("farside_server_regions", "Regions, snapshots included.", usage.regions);
  out->gauge("farside_server_snapshots", "Snapshots that share pages with their parent.", usage.snapshots);
  out->gauge("farside_server_connections", "Open connections.", c.clients.load());
  out->counter("farside_server_connections_total", "Connections accepted.", server->admission.accepted());
  out->counter("farside_server_received_bytes_total", "Bytes received from clients.", c.bytes_in.load());
  out->counter("farside_server_sent_bytes_total", "Bytes sent to clients.", c.bytes_out.load());
  append_refusals(*server, out);
  append_durations(c, out);
  append_regions(server->pool.regions(), out);
  if (server->registry) append_pool(server->registry.get(), out);
}

}  // namespace farside::server
