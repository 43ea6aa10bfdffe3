#include "cli/bench/workloads.h"

#include <algorithm>
#include <filesystem>

namespace farside::cli::bench {
namespace {

const Application kApplications[] = {
    {"psrs_sort", "second-chance"},
    {"analytics", "second-chance"},
    {"web_frontend", "priority"},
    {"kv_server", "second-chance"},
    {"checksum_scan", "second-chance"},
    {"gups", "second-chance"},
    {"cross_sections", "priority"},
    {"word_count", "second-chance"},
    {"pagerank", "priority"},
    // Its operations come at a given rate; what changes from way to way is how many a closed loop gets answered.
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
  std::error_code error;
  std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::error(error.value(), "cannot read /proc/self/exe: {}; is /proc mounted?", error.message());
  std::filesystem::path up = executable.parent_path().parent_path();
  for (const std::filesystem::path& place : {up / "libexec/farside/apps", up.parent_path() / "bench/apps"}) {
    if (std::filesystem::is_directory(place, error)) return place.string();
  }
  return Status::error(ENOENT, "the applications are not at {}/libexec/farside/apps; name their place by --apps-dir",
                       up.string());
}

}  // namespace farside::cli::bench
