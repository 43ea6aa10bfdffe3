#include "process/areas.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace farside::process {
namespace {

bool is_shared_memory(std::string_view name) {
  for (std::string_view start : {"/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "/anon_hugepage"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

Backing backing_of(bool shared, std::string_view name) {
  bool is_file = name.starts_with("/");
  if (!is_file) return Backing::kZeros;
  if (is_shared_memory(name) && (shared || name.starts_with("/dev/zero") || name.starts_with("/anon_hugepage"))) {
    return Backing::kZeros;
  }
  if (name.starts_with("/dev/") && !is_shared_memory(name)) return Backing::kDevice;
  return shared ? Backing::kSharedFile : Backing::kFile;
}

bool parse_line(const char* line, Area* area) {
  char rights[5] = {};
  int name_at = 0;
  int read = sscanf(line, "%lx-%lx %4s %lx %*x:%*x %lu %n", &area->begin, &area->end, rights, &area->offset,
                    &area->inode, &name_at);
  if (read < 5) return false;
  area->writable = rights[1] == 'w';
  area->executable = rights[2] == 'x';
  area->name = name_at > 0 ? line + name_at : "";
  area->shared = rights[3] == 's';
  area->backing = backing_of(area->shared, area->name);
  return true;
}

bool overlaps(const Area& a, const Area& b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

std::vector<Area> parse_areas(std::string_view maps) {
  std::vector<Area> areas;
  while (!maps.empty()) {
    size_t length = maps.find('\n');
    std::string line(maps.substr(0, length));
    maps.remove_prefix(length == std::string_view::npos ? maps.size() : length + 1);
    Area area;
    if (parse_line(line.c_str(), &area)) areas.push_back(std::move(area));
  }
  return areas;
}

Result<std::vector<Area>> read_areas(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/maps", pid));
  std::stringstream text;
  text << file.rdbuf();
  if (!file.is_open()) {
    int error = errno;
    return Status::error(error, "cannot read /proc/{}/maps: {}", pid, strerror(error));
  }
  return parse_areas(text.str());
}

std::vector<Area> areas_to_track(std::vector<Area> areas, const std::vector<Area>& tracked_before) {
  std::vector<Area> kept;
  size_t before = 0;
  for (Area& area : areas) {
    while (before < tracked_before.size() && tracked_before[before].end <= area.begin) before++;
    bool known = before < tracked_before.size() && overlaps(area, tracked_before[before]);
    if (area.backing != Backing::kDevice && (area.writable || known)) kept.push_back(std::move(area));
  }
  return kept;
}

}  // namespace farside::process
