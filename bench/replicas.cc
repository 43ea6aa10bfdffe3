// `farside bench replicas`: the cost of storing every page twice. The accesses of `bench paging` over one server and
// over two replicas, alternating, over shared memory and tcp.
#include "bench/suites.h"

namespace farside::bench {
namespace {

using nlohmann::json;

struct Servers {
  const char* name;
  unsigned replicas;
};
constexpr Servers kServers[] = {{"one server", 1}, {"two replicas", 2}};

Result<json> measure(const Setup& setup, const char* transport, const Servers& servers) {
  FarMemoryConfig far = setup.far(transport);
  far.replicas = servers.replicas;
  if (servers.replicas == 2)
    far.address += "," + (transport == kTransports[0] ? setup.second().shm() : setup.second().tcp());
  auto measured = measure_far(access_settings(setup.settings()), far);
  return measured.ok() ? access_rows(*measured) : measured;
}

}  // namespace

Suite replicas_suite() {
  return {.name = "replicas",
          .measurements = each(measure, Axis{"transport", kTransports}, Axis{"servers", kServers}),
          .tables = {table("us per access, medians", {"transport", "workload", "threads"}, {col("", "us", 2)})
                         .by("servers", kServers[1].name)}};
}

}  // namespace farside::bench
