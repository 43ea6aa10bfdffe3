#include "bench/all/results.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "base/size.h"
#include "bench/all/workloads.h"
#include "measure/statistics.h"
#include "report/files.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr unsigned kAllNear = 100;

std::string key_start(const std::string& app, const std::string& configuration, unsigned share) {
  return fmt::format("{}/{}/{}/", app, configuration, share);
}

// "gups/far/25/0" -> 25.
double share_of(const std::string& key) {
  size_t end = key.rfind('/');
  return strtod(key.c_str() + key.rfind('/', end - 1) + 1, nullptr);
}

std::string differences(const json& old, const json& now) {
  std::string names;
  for (const auto& [name, value] : now.items()) {
    if (!old.contains(name) || old[name] != value) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace

std::string Task::key() const { return key_start(app, configuration, share) + std::to_string(repetition); }

std::vector<Task> tasks_of(const TaskList& list) {
  std::vector<Task> tasks;
  for (unsigned repetition = 0; repetition < list.repetitions; repetition++) {
    for (const std::string& name : list.apps) {
      const Application* app = find_application(name);
      bool hints = app && app->hinted_policy;
      tasks.push_back({name, kNative, kAllNear, repetition});
      for (unsigned share : list.shares) {
        for (const std::string& configuration : list.configurations) {
          if (configuration != kNative && (configuration != kHinted || hints))
            tasks.push_back({name, configuration, share, repetition});
        }
      }
    }
  }
  return tasks;
}

Result<Results> Results::open(const std::string& file, const json& settings, bool fresh) {
  Results results;
  results.file_ = file;
  results.document_ = {{"benchmark", "all"},     {"machine", machine_json()}, {"settings", settings},
                       {"runs", json::object()}, {"traces", json::object()},  {"skipped", json::object()}};
  std::string text = fresh ? "" : read_file(file);
  if (text.empty()) return results;
  json old = json::parse(text, nullptr, false);
  if (!old.is_object() || !old.contains("settings") || !old.contains("runs")) {
    return Status::error(EINVAL, "{} is not a result of this benchmark; give --fresh or another --out", file);
  }
  std::string other = differences(old["settings"], settings);
  if (!other.empty()) {
    return Status::error(EINVAL, "{} was measured with another {}; give --fresh or another --out", file, other);
  }
  old["skipped"] = json::object();  // determined again in this run
  results.document_ = std::move(old);
  return results;
}

bool Results::needs(const Task& task) const {
  const json& runs = document_["runs"];
  for (const json& record : records(document_, task.app, task.configuration, task.share)) {
    if (record.contains("cut_off")) return false;
  }
  auto found = runs.find(task.key());
  return found == runs.end() || found->contains("failed");
}

Status Results::put(const Task& task, json record) { return put("runs", task.key(), std::move(record)); }

Status Results::put(const std::string& section, const std::string& name, json value) {
  document_[section][name] = std::move(value);
  return write();
}

Status Results::write() const { return replace_file(file_, document_.dump(1) + "\n"); }

std::vector<json> records(const json& document, const std::string& app, const std::string& configuration,
                          unsigned share) {
  std::vector<json> found;
  std::string start = key_start(app, configuration, share);
  for (const auto& [key, record] : document["runs"].items()) {
    if (key.starts_with(start)) found.push_back(record);
  }
  return found;
}

std::optional<double> median_of(const json& document, const std::string& app, const std::string& configuration,
                                unsigned share, const char* member) {
  std::vector<double> values;
  for (const json& record : records(document, app, configuration, share)) {
    if (record.contains(member)) values.push_back(record[member]);
  }
  if (values.empty()) return std::nullopt;
  return median(values);
}

std::vector<std::string> problems_of(const json& document) {
  std::vector<std::string> problems;
  std::map<std::string, std::map<std::string, std::string>> sums;  // application -> checksum -> a run with it
  for (const auto& [key, record] : document["runs"].items()) {
    if (record.contains("failed")) problems.push_back(fmt::format("{}: {}", key, record["failed"].get<std::string>()));
    if (record.contains("checksum")) sums[key.substr(0, key.find('/'))].emplace(record["checksum"], key);
  }
  for (const auto& [app, trace] : document["traces"].items()) {
    if (trace.contains("failed")) problems.push_back(fmt::format("{}: {}", app, trace["failed"].get<std::string>()));
  }
  for (const auto& [app, found] : sums) {
    if (found.size() < 2) continue;
    std::string text = app + ": results differ:";
    for (const auto& [sum, key] : found) text += fmt::format(" {} {}", key, sum);
    problems.push_back(text);
  }
  return problems;
}

std::vector<std::string> notes_of(const json& document) {
  constexpr double kMore = 1.25;
  std::vector<std::string> notes;
  for (const auto& [key, record] : document["runs"].items()) {
    for (const char* why : {"cut_off", "killed"}) {
      if (record.contains(why)) notes.push_back(fmt::format("{}: {}", key, record[why].get<std::string>()));
    }
    if (!record.contains("costs")) continue;
    uint64_t near = record["costs"]["near_bytes"], heap = record["costs"]["heap_bytes"];
    if (static_cast<double>(near) * 100 > kMore * share_of(key) * static_cast<double>(heap)) {
      notes.push_back(fmt::format("{}: {} of {} were near, the minimum; give a larger --size", key, format_size(near),
                                  format_size(heap)));
    }
  }
  return notes;
}

}  // namespace farside::bench
