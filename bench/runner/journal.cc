#include "bench/runner/journal.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include "report/files.h"

namespace farside::bench {

using nlohmann::json;

Result<Journal> Journal::open(const std::string& path, const json& measured_with) {
  Journal journal;
  if (path.empty()) return journal;
  journal.path_ = path;
  std::istringstream lines(read_file(journal.path_));
  std::string line;
  if (!std::getline(lines, line)) {
    Status created = write_file(journal.path_, measured_with.dump() + "\n");
    return created.ok() ? Result<Journal>(std::move(journal)) : created;
  }
  if (json::parse(line, nullptr, false) != measured_with)
    return Status::error(EINVAL, "{} is of a run with other options or of another commit; delete it", journal.path_);
  while (std::getline(lines, line)) {
    json known = json::parse(line, nullptr, false);  // the last line may be incomplete
    if (known.is_array() && known.size() == 2) journal.results_[known[0]] = known[1];
  }
  return journal;
}

const json* Journal::find(const std::string& measurement) const {
  auto found = results_.find(measurement);
  return found == results_.end() ? nullptr : &found->second;
}

// An incomplete line before it stays a line of its own.
Status Journal::add(const std::string& measurement, const json& result) {
  if (path_.empty()) return {};
  std::ofstream file(path_, std::ios::app);
  file << '\n' << json::array({measurement, result}).dump() << std::flush;
  return file ? Status() : Status::error(errno, "cannot write to {}: {}", path_, strerror(errno));
}

}  // namespace farside::bench
