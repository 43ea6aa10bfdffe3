#include "bench/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "measure/configurations.h"
#include "measure/process.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr const char *kFile = "far file", *kEncrypted = "encrypted", *kSwap = "kernel swap", *kMapped = "mapped file";
constexpr const char* kConfigurations[] = {kFile, kEncrypted, kSwap, kMapped};

// A file whose pages the kernel writes and reads by itself.
Result<std::byte*> map_file(const std::string& folder, uint64_t bytes) {
  int fd = open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  bool sized = fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  void* memory = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  int error = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) return Status::error(error, "cannot map a file in {}: {}", folder, strerror(error));
  return static_cast<std::byte*>(memory);
}

class FileRun {
 public:
  FileRun(const FileSettings& settings, const SignalHold& hold)
      : settings_(settings), hold_(hold), progress_(4 * settings.repetitions, settings.quiet) {}

  Status prepare() {
    auto swap = FileSwap::create(settings_.folder, 2 * settings_.bytes);
    if (swap.ok()) swap_ = std::move(*swap);
    else unusable_[kSwap] = swap.status().text();
    auto limit = MemoryLimit::create_for(settings_.bytes, settings_.local);
    if (limit.ok()) limit_ = std::move(*limit);
    else unusable_[kSwap] = unusable_[kMapped] = limit.status().text();
    return {};
  }

  Status repeat() {
    for (const char* name : kConfigurations) {
      if (unusable_.contains(name)) continue;
      progress_.step(name);
      Result<json> made = run_in_child(hold_, [&] { return measure(name); });
      if (made.ok()) runs_[name].push_back(std::move(*made));
      else if (made.status().code() == EINTR) return made.status();
      else failures_[name] = made.status().text();
    }
    return {};
  }

  // The kernel may kill a process that swaps too slowly. Other repetitions count.
  std::map<std::string, std::string> skipped() const {
    std::map<std::string, std::string> all = unusable_;
    for (const auto& [name, reason] : failures_) {
      if (!runs_.contains(name)) all[name] = reason;
    }
    return all;
  }

  json document() const {
    json made = {{"benchmark", "file"}, {"machine", machine_json()}, {"skipped", skipped()}, {"cells", json::array()}};
    made["settings"] = {{"bytes", settings_.bytes},
                        {"local_share", settings_.local},
                        {"accesses", settings_.accesses},
                        {"repetitions", settings_.repetitions},
                        {"folder", settings_.folder}};
    for (size_t cell = 0; cell < runs_.at(kFile)[0]["cells"].size(); cell++) add_cell(cell, &made["cells"]);
    for (const auto& [name, runs] : runs_) {
      for (const char* value : {"median_us", "p99_us"}) {
        made["miss"][name][value] = summary(values(runs, [&](const json& run) { return run["miss"][value]; }));
      }
    }
    return made;
  }

 private:
  Result<json> measure(std::string_view name) const {
    if (name == kFile || name == kEncrypted) return measure_far(settings_, far_memory(name == kEncrypted));
    Status entered = limit_->enter();
    if (!entered.ok()) return entered;
    auto memory = name == kSwap ? map_plain(settings_.bytes) : map_file(settings_.folder, settings_.bytes);
    return memory.ok() ? measure_memory(settings_, *memory) : memory.status();
  }

  FarMemoryConfig far_memory(bool encrypted) const {
    FarMemoryConfig far;
    far.bytes = settings_.bytes;
    far.address = fmt::format("file:{}?size={}&alloc=full{}", settings_.folder, 2 * settings_.bytes + (256 << 20),
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
  std::unique_ptr<FileSwap> swap_;
  std::unique_ptr<MemoryLimit> limit_;
  std::map<std::string, std::vector<json>> runs_;
  std::map<std::string, std::string> unusable_, failures_;  // with the reasons
};

double median_of(const json& cell, const char* name) {
  return cell["us"].contains(name) ? cell["us"][name]["median"].get<double>() : 0;
}

}  // namespace

Result<json> measure_file(const FileSettings& given) {
  FileSettings settings = given;
  settings.threads = {1, 16};
  SignalHold hold;
  FileRun run(settings, hold);
  Status status = run.prepare();
  for (unsigned i = 0; i < settings.repetitions && status.ok(); i++) status = run.repeat();
  if (!status.ok()) return status;
  return run.document();
}

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
  std::string text = machine_text(document["machine"]) + "\n\n" + format_table(rows) + "\nrandom reads that miss, us:";
  for (const auto& [name, miss] : document["miss"].items()) {
    text += fmt::format(" {}: median {:.0f}, p99 {:.0f};", name, miss["median_us"]["median"].get<double>(),
                        miss["p99_us"]["median"].get<double>());
  }
  text.back() = '\n';
  for (const auto& [name, reason] : document["skipped"].items())
    text += fmt::format("{}: not run: {}\n", name, reason.get<std::string>());
  return text;
}

}  // namespace farside::bench
