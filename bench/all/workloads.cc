#include "bench/all/workloads.h"

#include <unistd.h>

#include <algorithm>

#include "launch/installation.h"

namespace farside::bench {
namespace {

const Application kApplications[] = {
    {"psrs_sort", "2q"},
    {"analytics", "2q"},
    {"web_frontend", "priority"},
    {"kv_server", "2q"},
    {"checksum_scan", "2q"},
    {"gups", "2q"},
    {"cross_sections", "priority"},
    {"word_count", "2q"},
    {"pagerank", "priority"},
    // Its request rate is fixed. The compared value is the number of requests that a closed loop completes.
    {"memcached_load", nullptr, "capacity_per_s", {"--operations", "10000", "--rates", "5000,10000,20000,40000,80000"}},
};

}  // namespace

std::span<const Application> applications() { return kApplications; }

std::vector<std::string> application_names() {
  std::vector<std::string> names;
  for (const Application& app : kApplications) names.push_back(app.name);
  return names;
}

const Application* find_application(const std::string& name) {
  auto found = std::ranges::find_if(kApplications, [&](const Application& app) { return app.name == name; });
  return found == std::end(kApplications) ? nullptr : found;
}

Result<std::string> find_applications() {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return installation.status();
  std::string place = installation->applications();
  if (access(place.c_str(), R_OK) == 0) return place;
  return Status::error(ENOENT, "there are no applications in {}; give their folder with --apps-dir", place);
}

}  // namespace farside::bench
