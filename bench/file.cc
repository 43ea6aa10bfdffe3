// `farside bench file`: far memory in a file or on a block device, beside kernel swap and a mapped file there. The
// accesses of `bench paging`, by one thread, 16 threads and 16 fibers.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bench/suites.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr const char *kFile = "far file", *kFileSwap = "kernel swap", *kMapped = "mapped file";
constexpr const char* kConfigurations[] = {kFile, "encrypted", kFileSwap, kMapped};

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

AccessSettings settings_of(const Setup& setup) {
  AccessSettings settings = access_settings(setup.settings());
  settings.threads = {1, kMany};
  return settings;
}

FarMemoryConfig far_file(const Settings& s, bool encrypted) {
  return {.address = fmt::format("file:{}?size={}&alloc=full{}", s.place, 2 * s.bytes + 256 * kMiB,
                                 encrypted ? "&crypt=yes" : ""),
          .token = "",
          .bytes = s.bytes,
          .local = s.near_bytes(),
          .evictors = s.evictors};
}

// Fibers hide the time of a read from each other, as threads do. The better of both counts in the goals.
void add_fibers(json* rows, const json& us) {
  const json threads = {{"workload", kRandomRead.name}, {"threads", kMany}};
  for (json& row : *rows) {
    if (row["key"] != threads) continue;
    row["figures"]["best_us"] = std::min(row["figures"]["us"].get<double>(), us["plain"].get<double>());
    row["figures"]["fibers_us"] = us["plain"];
    row["figures"]["hinted_us"] = us["hinted"];
  }
}

Result<json> measure_far_file(const Setup& setup, bool encrypted) {
  const Settings& s = setup.settings();
  json us;
  auto measured = measure_far(settings_of(setup), far_file(s, encrypted), [&](FarMemory& far, json*) {
    for (bool hinted : {false, true}) {
      time_fibers(far, far.arena(), kMany, s.accesses, hinted);
      double per_s = time_fibers(far, far.arena(), kMany, s.accesses, hinted);
      us[hinted ? "hinted" : "plain"] = kMany * 1e6 / per_s;
    }
  });
  if (!measured.ok()) return measured.status();
  json rows = access_rows(*measured);
  add_fibers(&rows, us);
  return rows;
}

Result<json> measure_by_kernel(const Setup& setup, bool swapped) {
  const Settings& s = setup.settings();
  auto limit = MemoryLimit::create_for(s.bytes, s.share);
  if (!limit.ok()) return limit.status();
  (*limit)->keep_alive();
  auto swap = swapped ? FileSwap::create(s.place, 2 * s.bytes) : Result<std::unique_ptr<FileSwap>>(nullptr);
  if (!swap.ok()) return swap.status();
  Result<json> made = run_in_child(setup.hold(), [&]() -> Result<json> {
    if (Status entered = (*limit)->enter(); !entered.ok()) return entered;
    auto memory = swapped ? map_plain(s.bytes) : map_file(s.place, s.bytes);
    return memory.ok() ? measure_memory(settings_of(setup), *memory) : memory.status();
  });
  if (!swapped && is_block_device(s.place)) clear_head(s.place);
  if (!made.ok() && (*limit)->kills() > 0) return Status::error(ENOMEM, "killed by the kernel for lack of memory");
  return made.ok() ? access_rows(*made) : made;
}

Result<json> measure(const Setup& setup, const char* configuration) {
  std::string_view name = configuration;
  if (name == kFileSwap || name == kMapped) return measure_by_kernel(setup, name == kFileSwap);
  return run_in_child(setup.hold(), [&] { return measure_far_file(setup, name != kFile); });
}

// The others are compared with the far file. The kernel may kill a process that swaps too slowly.
std::vector<Measurement> measurements(const Setup& setup) {
  auto all = measure_each(setup, measure, Axis{"configuration", kConfigurations});
  std::erase_if(all, [&](const Measurement& m) {
    return m.name != kFile && !Settings::wants(setup.settings().configurations, m.name);
  });
  for (Measurement& m : all) {
    m.in_parent = true;
    m.may_fail = m.name != kFile;
  }
  return all;
}

Target beside_swap(const char* workload, unsigned threads, const char* per, double limit) {
  return goal("{workload}, {threads}: kernel swap's time by the far file's", "us", at_least(limit),
              {{"configuration", kFileSwap}, {"workload", workload}, {"threads", threads}})
      .over(per, {{"configuration", kFile}});
}

}  // namespace

Suite file_accesses_suite() {
  return {.name = "accesses",
          .measurements = measurements,
          .tables = {table("us per access, medians", {"workload", "threads"}, {col("", "us", 2)})
                         .by("configuration", kFileSwap),
                     table("random read, us, 16 fibers", {"configuration"},
                           {col("fibers", "fibers_us", 2), col("with hints", "hinted_us", 2)}),
                     table("random reads that miss, us", {"configuration"},
                           {col("median", "median_us", 0), col("p99", "p99_us", 0)})
                         .of({{"workload", kMisses}})},
          .targets = {beside_swap("random read", 1, "us", 1.5), beside_swap("sequential read", 1, "us", 3),
                      beside_swap("random read", kMany, "best_us", 3),
                      goal("random reads that miss: p99 by median", "p99_us", at_most(5),
                           {{"configuration", kFile}, {"workload", kMisses}})
                          .over("median_us")}};
}

}  // namespace farside::bench
