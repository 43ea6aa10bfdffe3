#include "bench/scaling/costs.h"

#include <algorithm>

namespace farside::bench::scaling {
namespace {

using nlohmann::json;

template <typename Owner>
struct Field {
  const char* name;
  double Owner::*value;
};

constexpr Field<WorkloadCosts> kWorkloadFields[] = {
    {"access", &WorkloadCosts::access},
    {"faults_per_access", &WorkloadCosts::faults_per_access},
    {"pages_per_fault", &WorkloadCosts::pages_per_fault},
    {"dirty", &WorkloadCosts::dirty},
    {"signal", &WorkloadCosts::signal},
    {"handle", &WorkloadCosts::handle},
    {"fetch", &WorkloadCosts::fetch},
    {"map", &WorkloadCosts::map},
    {"select", &WorkloadCosts::select},
    {"hold", &WorkloadCosts::hold},
    {"unmap", &WorkloadCosts::unmap},
    {"write", &WorkloadCosts::write},
    {"release", &WorkloadCosts::release},
};

constexpr Field<MachineCosts> kMachineFields[] = {
    {"line", &MachineCosts::line_near},
    {"siglock_hold", &MachineCosts::siglock_hold},
    {"shootdown", &MachineCosts::shootdown},
    {"wake", &MachineCosts::wake},
    {"wake_latency", &MachineCosts::wake_latency},
    {"move", &MachineCosts::move},
    {"copy", &MachineCosts::copy},
};

constexpr Field<LinkCosts> kLinkFields[] = {
    {"submit", &LinkCosts::submit},
    {"complete", &LinkCosts::complete},
    {"complete_page", &LinkCosts::complete_page},
    {"serve", &LinkCosts::serve},
    {"serve_page", &LinkCosts::serve_page},
    {"latency", &LinkCosts::latency},
    {"page", &LinkCosts::page},
};

template <typename Owner, size_t kCount>
json write_fields(const Field<Owner> (&fields)[kCount], const Owner& owner) {
  json object;
  for (const auto& f : fields) object[f.name] = owner.*f.value;
  return object;
}

template <typename Owner, size_t kCount>
Status read_fields(const Field<Owner> (&fields)[kCount], const json& object, Owner* owner) {
  for (const auto& f : fields) {
    if (!object.is_object() || !object.contains(f.name) || !object[f.name].is_number() || object[f.name] < 0) {
      return Status::error(EINVAL, "costs: {} is missing or not a cost; measure again", f.name);
    }
    owner->*f.value = object[f.name];
  }
  return {};
}

}  // namespace

json to_json(const Costs& costs) {
  json document = {{"machine", write_fields(kMachineFields, costs.here)}, {"workloads", json::object()}};
  document["machine"]["cores"] = costs.here.cores;
  for (const auto& [name, w] : costs.workloads) document["workloads"][name] = write_fields(kWorkloadFields, w);
  document["tiers"] = json::object();
  for (const auto& [name, link] : costs.tiers) document["tiers"][name] = write_fields(kLinkFields, link);
  document["frames"] = costs.frames;
  document["miss"] = {{"median_us", costs.miss_median}, {"p99_us", costs.miss_p99}};
  document["measured"] = json::array();
  for (const Measured& m : costs.measured) {
    document["measured"].push_back(
        {{"workload", m.workload}, {"tier", m.tier}, {"cores", m.cores}, {"threads", m.threads}, {"us", m.us}});
  }
  return document;
}

Result<Costs> parse_costs(const json& document) {
  Costs costs;
  if (!document.is_object() || !document.contains("machine") || !document.contains("workloads") ||
      !document["workloads"].is_object()) {
    return Status::error(EINVAL, "costs: no machine or no workloads; measure again");
  }
  Status read = read_fields(kMachineFields, document["machine"], &costs.here);
  if (!read.ok()) return read;
  costs.here.line_far = costs.here.line_near;
  costs.here.cores = costs.here.cores_per_socket = document["machine"].value("cores", 2u);
  for (const auto& [name, object] : document["workloads"].items()) {
    read = read_fields(kWorkloadFields, object, &costs.workloads[name]);
    if (!read.ok()) return read;
    WorkloadCosts& w = costs.workloads[name];
    if (w.faults_per_access <= 0 || w.pages_per_fault <= 0) {
      return Status::error(EINVAL, "costs: {} has no faults; measure again", name);
    }
  }
  json tiers = document.value("tiers", json::object());
  for (const auto& [name, object] : tiers.items()) {
    read = read_fields(kLinkFields, object, &costs.tiers[name]);
    if (!read.ok()) return read;
  }
  costs.frames = document.value("frames", uint64_t{0});
  json miss = document.value("miss", json::object());
  costs.miss_median = miss.value("median_us", 0.0);
  costs.miss_p99 = miss.value("p99_us", 0.0);
  for (const json& m : document.value("measured", json::array())) {
    if (!costs.workloads.contains(m.value("workload", ""))) continue;
    costs.measured.push_back(
        {m["workload"], m.value("tier", "shm"), m.value("cores", 0u), m.value("threads", 0u), m.value("us", 0.0)});
  }
  return costs;
}

MachineCosts large_machine(unsigned cores) {
  MachineCosts m;
  m.cores = cores;
  m.cores_per_socket = 28;
  m.line_near = 0.05;
  m.line_far = 0.13;
  m.shootdown = 2.6;
  m.shootdown_per_core = (27 - 2.6) / 47;  // 27 us at 48 threads
  m.wake_latency = 10;
  m.link.latency = 3.9;
  m.link.page = 4096 * 8 / 192e3;  // 192 Gbit/s in each direction
  return m;
}

WorkloadCosts over_link(WorkloadCosts w) {
  constexpr double kPost = 0.1;     // posting a request to the network card
  constexpr double kCopyOut = 0.3;  // per dirty page, from the pipe to memory that the card can read
  w.fetch = 0;                      // part of the link's costs instead
  w.handle += kPost;
  w.write = std::min(w.write, w.dirty * (kPost + kCopyOut));
  return w;
}

const WorkloadCosts& costs_over(const Costs& costs, const std::string& workload, const std::string& tier) {
  auto own = costs.workloads.find(workload + ", " + tier);
  return own != costs.workloads.end() ? own->second : costs.workloads.at(workload);
}

}  // namespace farside::bench::scaling
