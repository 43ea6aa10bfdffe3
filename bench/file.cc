#include "bench/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/fibers.h"
#include "bench/file_programs.h"
#include "measure/configurations.h"
#include "measure/process.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr const char *kFile = "far file", *kEncrypted = "encrypted", *kSwap = "kernel swap", *kMapped = "mapped file";
constexpr const char* kConfigurations[] = {kFile, kEncrypted, kSwap, kMapped};

constexpr unsigned kMany = 16;  // threads, or fibers

// A file whose pages the kernel writes and reads by itself.
Result<std::byte*> map_file(const std::string& place, uint64_t bytes) {
  bool device = is_block_device(place);
  int fd = open(place.c_str(), (device ? O_EXCL : O_TMPFILE) | O_RDWR | O_CLOEXEC, 0600);
  bool sized = fd >= 0 && (device || ftruncate(fd, static_cast<off_t>(bytes)) == 0);
  void* memory = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  int error = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) return Status::error(error, "cannot map a file in {}: {}", place, strerror(error));
  return static_cast<std::byte*>(memory);
}

class FileRun {
 public:
  FileRun(const FileSettings& settings, const SignalHold& hold)
      : settings_(settings), hold_(hold), progress_(4 * settings.repetitions, settings.quiet) {}

  Status repeat() {
    for (const char* name : kConfigurations) {
      if (!is_wanted(name)) continue;
      progress_.step(name);
      Result<json> made = measure(name);
      if (made.ok()) runs_[name].push_back(std::move(*made));
      else if (made.status().code() == EINTR || name == kFile) return made.status();
      else failures_[name] = made.status().text();
    }
    return {};
  }

  Status run_programs() {
    Result<json> made = measure_programs(settings_, hold_, &failures_);
    if (made.ok()) programs_ = std::move(*made);
    return made.status();
  }

  // The kernel may kill a process that swaps too slowly. Other repetitions count.
  std::map<std::string, std::string> skipped() const {
    std::map<std::string, std::string> all;
    for (const auto& [name, reason] : failures_) {
      if (!runs_.contains(name)) all[name] = reason;
    }
    return all;
  }

  json document() const {
    json made = {{"benchmark", "file"}, {"machine", machine_json()}, {"skipped", skipped()}, {"cells", json::array()}};
    made["programs"] = programs_;
    made["settings"] = {{"bytes", settings_.bytes},
                        {"local_share", settings_.local},
                        {"accesses", settings_.accesses},
                        {"repetitions", settings_.repetitions},
                        {"place", settings_.place}};
    for (size_t cell = 0; cell < runs_.at(kFile)[0]["cells"].size(); cell++) add_cell(cell, &made["cells"]);
    for (const auto& [name, runs] : runs_) {
      for (const char* value : {"median_us", "p99_us"}) {
        made["miss"][name][value] = summary(values(runs, [&](const json& run) { return run["miss"][value]; }));
      }
    }
    for (const char* kind : {"plain", "hinted"})
      made["fibers"][kind] = summary(values(runs_.at(kFile), [&](const json& run) { return run["fibers"][kind]; }));
    return made;
  }

 private:
  // The others are compared with the far file.
  bool is_wanted(const std::string& name) const {
    const auto& wanted = settings_.configurations;
    return name == kFile || wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  }

  Result<json> measure(std::string_view name) {
    bool encrypted = name == kEncrypted;
    if (name == kFile || encrypted) return run_in_child(hold_, [&] { return measure_far_file(encrypted); });
    auto limit = MemoryLimit::create_for(settings_.bytes, settings_.local);
    if (!limit.ok()) return limit.status();
    (*limit)->keep_alive();
    std::unique_ptr<FileSwap> swap;
    if (name == kSwap) {
      auto made = FileSwap::create(settings_.place, 2 * settings_.bytes);
      if (!made.ok()) return made.status();
      swap = std::move(*made);
    }
    Result<json> made = run_in_child(hold_, [&]() -> Result<json> {
      if (Status entered = (*limit)->enter(); !entered.ok()) return entered;
      auto memory = name == kSwap ? map_plain(settings_.bytes) : map_file(settings_.place, settings_.bytes);
      return memory.ok() ? measure_memory(settings_, *memory) : memory.status();
    });
    if (name == kMapped && is_block_device(settings_.place)) clear_head(settings_.place);
    if (!made.ok() && (*limit)->kills() > 0) return Status::error(ENOMEM, "killed by the kernel for lack of memory");
    return made;
  }

  Result<json> measure_far_file(bool encrypted) const {
    return measure_far(settings_, far_memory(encrypted), [&](FarMemory& far, json* out) {
      Arena arena = far.arena();
      for (bool hinted : {false, true}) {
        time_fibers(far, arena, kMany, settings_.accesses, hinted);
        double per_s = time_fibers(far, arena, kMany, settings_.accesses, hinted);
        (*out)["fibers"][hinted ? "hinted" : "plain"] = kMany * 1e6 / per_s;
      }
    });
  }

  FarMemoryConfig far_memory(bool encrypted) const {
    FarMemoryConfig far;
    far.bytes = settings_.bytes;
    far.address = fmt::format("file:{}?size={}&alloc=full{}", settings_.place, 2 * settings_.bytes + (256 << 20),
                              encrypted ? "&crypt=yes" : "");
    far.local = static_cast<uint64_t>(settings_.local * static_cast<double>(settings_.bytes));
    far.evictors = settings_.evictors;
    return far;
  }

  template <typename Get>
  static std::vector<double> values(const std::vector<json>& runs, Get get) {
    std::vector<double> all;
    for (const json& run : runs) {
      json value = get(run);
      if (value.is_number()) all.push_back(value);
    }
    return all;
  }

  void add_cell(size_t cell, json* cells) const {
    const json& first = runs_.at(kFile)[0]["cells"][cell];
    json made = {{"workload", first["workload"]}, {"threads", first["threads"]}};
    for (const auto& [name, runs] : runs_) {
      made["us"][name] = summary(values(runs, [&](const json& run) { return run["cells"][cell]["us"]; }));
    }
    cells->push_back(made);
  }

  const FileSettings& settings_;
  const SignalHold& hold_;
  Progress progress_;
  std::map<std::string, std::vector<json>> runs_;
  std::map<std::string, std::string> failures_;  // with the reasons
  json programs_ = json::array();
};

double median_of(const json& cell, const char* name) {
  return cell["us"].contains(name) ? cell["us"][name]["median"].get<double>() : 0;
}

double fibers_of(const json& document, const char* kind) { return document["fibers"][kind]["median"]; }

}  // namespace

Result<json> measure_file(const FileSettings& given) {
  FileSettings settings = given;
  settings.threads = {1, kMany};
  SignalHold hold;
  FileRun run(settings, hold);
  Status status;
  for (unsigned i = 0; i < settings.repetitions && status.ok(); i++) status = run.repeat();
  if (status.ok() && settings.programs) status = run.run_programs();
  if (!status.ok()) return status;
  json document = run.document();
  document["goals"] = json::array();
  for (const Goal& goal : file_goals(document)) document["goals"].push_back(goal.to_json());
  return document;
}

std::vector<std::string> file_configurations() { return {std::begin(kConfigurations), std::end(kConfigurations)}; }

// Fibers hide the time of a read from each other, as threads do; the better of both counts.
std::vector<Goal> file_goals(const json& document) {
  std::vector<Goal> goals;
  for (const json& cell : document["cells"]) {
    double swap = median_of(cell, kSwap), file = median_of(cell, kFile);
    bool many = cell["threads"] == kMany;
    std::string workload = cell["workload"];
    if (swap == 0 || workload.ends_with("write")) continue;
    if (many && workload == "random read") file = std::min(file, fibers_of(document, "plain"));
    else if (many) continue;
    goals.push_back({fmt::format("{}, {}: kernel swap's time by the far file's", workload, many ? kMany : 1u),
                     swap / file, workload == "random read" && !many ? 1.5 : 3.0, true, "x"});
  }
  const json& miss = document["miss"][kFile];
  goals.push_back({"random reads that miss: p99 by median",
                   miss["p99_us"]["median"].get<double>() / miss["median_us"]["median"].get<double>(), 5, false, "x"});
  return goals;
}

namespace {

std::string programs_text(const json& programs) {
  if (programs.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"programs", "", "native", kFile, kSwap, "better by"}};
  for (const json& row : programs) {
    std::vector<std::string> cells = {row["name"], row["unit"]};
    for (const char* name : {"native", kFile, kSwap})
      cells.push_back(row.contains(name) ? fmt::format("{:.2f}", row[name]["median"].get<double>()) : "-");
    if (row.contains(kSwap)) {
      double ratio = row[kSwap]["median"].get<double>() / row[kFile]["median"].get<double>();
      cells.push_back(fmt::format("{:.2f}x", row["unit"] == "s" ? ratio : 1 / ratio));
    }
    cells.resize(rows[0].size(), "-");
    rows.push_back(cells);
  }
  return format_table(rows) + "\n";
}

}  // namespace

std::string file_text(const json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"us per access, medians", "threads", kFile, kEncrypted, kSwap, kMapped, "swap / file", "mapped / file"}};
  auto ratio = [](double other, double file) { return other > 0 ? fmt::format("{:.2f}x", other / file) : "-"; };
  for (const json& cell : document["cells"]) {
    std::vector<std::string> row = {cell["workload"], fmt::format("{}", cell["threads"].get<unsigned>())};
    for (const char* name : kConfigurations) row.push_back(fmt::format("{:.2f}", median_of(cell, name)));
    for (const char* name : {kSwap, kMapped}) row.push_back(ratio(median_of(cell, name), median_of(cell, kFile)));
    rows.push_back(std::move(row));
  }
  std::string text = machine_text(document["machine"]) + "\n\n" + format_table(rows);
  text += fmt::format("random read, {} fibers, far file: {:.2f}, with hints {:.2f}\n\n", kMany,
                      fibers_of(document, "plain"), fibers_of(document, "hinted"));
  text += programs_text(document["programs"]) + "random reads that miss, us:";
  for (const auto& [name, miss] : document["miss"].items()) {
    text += fmt::format(" {}: median {:.0f}, p99 {:.0f};", name, miss["median_us"]["median"].get<double>(),
                        miss["p99_us"]["median"].get<double>());
  }
  text.back() = '\n';
  for (const auto& [name, reason] : document["skipped"].items())
    text += fmt::format("{}: not run: {}\n", name, reason.get<std::string>());
  for (const Goal& goal : file_goals(document)) text += goal.text() + "\n";
  return text;
}

}  // namespace farside::bench
