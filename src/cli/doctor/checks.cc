#include "cli/doctor/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/userfaultfd.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/bits.h"
#include "base/os.h"
#include "base/size.h"
#include "launch/installation.h"
#include "launch/preload.h"
#include "launch/probes.h"
#include "process/pagemap.h"
#include "process/write_protection.h"
#include "report/machine.h"
#include "ucx/helper.h"

namespace farside::cli {
namespace {

constexpr int kOldestKernel = 5 * 1000 + 11;
constexpr int kBatchKernel = 6 * 1000 + 16;
constexpr uint64_t kUsefulDescriptors = 1024;

Finding check_kernel() {
  utsname names;
  uname(&names);
  int number = kernel_number(names.release);
  if (number < kOldestKernel) {
    return finding("kernel", Health::kMissing, names.release, "Farside needs Linux 5.11; 6.16 or newer is best");
  }
  return finding("kernel", health_of(number >= kBatchKernel, Health::kLimited), names.release,
                 "works; Linux 6.16 unmaps pages in batches, which makes eviction faster");
}

Finding check_features(uint64_t features) {
  struct Feature {
    uint64_t bit;
    const char* name;
  };
  constexpr Feature kFeatures[] = {{UFFD_FEATURE_SIGBUS, "SIGBUS"},
                                   {UFFD_FEATURE_PAGEFAULT_FLAG_WP, "write protection"},
                                   {UFFD_FEATURE_THREAD_ID, "thread id"},
                                   {UFFD_FEATURE_EXACT_ADDRESS, "exact address"}};
  std::string has;
  for (const Feature& feature : kFeatures) {
    if ((features & feature.bit) != 0) has += (has.empty() ? "" : ", ") + std::string(feature.name);
  }
  bool writes_seen = (features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0;
  return finding(
      "fault features", health_of(writes_seen, Health::kMissing), has.empty() ? "none" : has,
      "write protection is needed to detect dirty pages; use a kernel built with it (5.7 or newer, x86-64 or arm64)");
}

Finding check_batches() {
  bool works = unmaps_in_batches();
  return finding("batched unmapping", health_of(works, Health::kLimited),
                 works ? "process_madvise drops scattered pages in one call" : "one madvise call for each run of pages",
                 "works, with more time per eviction; Linux 6.16 has it");
}

Finding check_huge_pages(uint64_t features) {
  std::string setting = read_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (setting.empty() || setting.find("[never]") != std::string::npos)
    return finding("huge pages", Health::kLimited, setting.empty() ? "none in this kernel" : "off",
                   "works, page by page; streams are 3 to 10 times as fast with "
                   "'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled'");
  bool moves = (features & os::kUffdFeatureMove) != 0;
  return finding("huge pages", health_of(moves, Health::kLimited),
                 moves ? "2 MiB frames are moved into place" : "this kernel cannot move them",
                 "works, page by page; Linux 6.8 moves huge pages (6.14 is best), which makes streams faster");
}

Finding check_memory_file_pages() {
  bool huge = memory_files_are_huge();
  return finding(
      "memory file pages", health_of(!huge, Health::kLimited), huge ? "2 MiB" : "4 KiB",
      "a memory server here is full as soon as its clients use many ranges of 2 MiB, however little of each; "
      "'echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled'");
}

Finding check_space(uint64_t wanted) {
  uint64_t got = reservable_space(wanted);
  std::string found = fmt::format("{} of {} reserved (vm.overcommit_memory={})", format_size(got), format_size(wanted),
                                  read_line("/proc/sys/vm/overcommit_memory"));
  Health health = got >= wanted ? Health::kOk : got > 0 ? Health::kLimited : Health::kMissing;
  std::string advice = got > 0 ? fmt::format("pass --tune space={}G, or sysctl vm.overcommit_memory=0", got / kGiB)
                               : "sysctl vm.overcommit_memory=0, and ulimit -v unlimited";
  return finding("address space", health, found, advice);
}

std::string limit_text(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit); }

Finding check_limits() {
  rlimit space = {}, files = {};
  getrlimit(RLIMIT_AS, &space);
  getrlimit(RLIMIT_NOFILE, &files);
  bool few_files = files.rlim_cur < kUsefulDescriptors, few_addresses = space.rlim_cur != RLIM_INFINITY;
  std::string advice = few_files ? "ulimit -n 4096 (each thread has a connection)" : "";
  if (few_addresses)
    advice += fmt::format("{}ulimit -v unlimited (a fourth of it is for far memory)", few_files ? "; " : "");
  return finding("limits", health_of(!few_files && !few_addresses, Health::kLimited),
                 fmt::format("addresses {}, descriptors {}", limit_text(space.rlim_cur), limit_text(files.rlim_cur)),
                 advice);
}

Finding check_seccomp() {
  std::ifstream file("/proc/self/status");
  std::string state = "unknown";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Seccomp:")) state = line.substr(line.find_last_of("\t ") + 1);
  }
  bool filtered = state == "2" || state == "1";
  return finding("seccomp", health_of(!filtered, Health::kLimited), filtered ? "a filter is active" : "no filter",
                 "the probes above ran under it; if one failed, allow userfaultfd, process_madvise, vmsplice");
}

Finding check_cores() {
  unsigned cores = std::thread::hardware_concurrency();
  return finding("cores", health_of(cores > 1, Health::kLimited), fmt::format("{}", cores),
                 "works; eviction and the program share the core");
}

Finding check_memory() {
  MachineMemory memory = machine_memory();
  return finding("memory", health_of(memory.available >= kGiB, Health::kLimited),
                 fmt::format("{} available of {}", format_size(memory.available), format_size(memory.total)),
                 "lend memory from another machine with farside serve, and name it with --far");
}

Finding check_comparisons() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  bool zram = fs::exists("/sys/class/zram-control", ignored) || fs::exists("/sys/block/zram0", ignored);
  bool v2 = read_line("/sys/fs/cgroup/cgroup.controllers").find("memory") != std::string::npos;
  bool v1 = fs::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes", ignored);
  return finding("comparisons", health_of(zram && (v1 || v2), Health::kLimited),
                 fmt::format("zram {}, memory cgroup {}", zram ? "present" : "absent",
                             v2   ? "v2"
                             : v1 ? "v1"
                                  : "absent"),
                 "only benchmarks against kernel swap need these: modprobe zram, and root");
}

Finding check_write_tracking() {
  double fault_ns = process::write_fault_ns();
  if (fault_ns > 0) {
    return finding("write tracking", Health::kOk,
                   fmt::format("asynchronous write protection, {:.2f} us a first write", fault_ns / 1000), "");
  }
  return finding("write tracking", Health::kLimited,
                 process::keeps_soft_dirty() ? "soft-dirty bits" : "none: farside track compares all present pages",
                 "only farside track uses it, and works without it; Linux 6.7 has asynchronous write protection");
}

Finding check_library() {
  Result<std::string> library = find_preload_library();
  if (library.ok()) return finding("preload library", Health::kOk, *library, "");
  return finding("preload library", Health::kMissing, "not found", library.status().text());
}

Finding check_transports() {
  double tcp = tcp_round_trip_us(), shm = shm_copy_us();
  bool good = tcp >= 0 && shm >= 0;
  auto shown = [](double us) { return us < 0 ? std::string("fails") : fmt::format("{:.2f} us", us); };
  return finding("transports", health_of(good, Health::kLimited),
                 fmt::format("4 KiB: tcp on loopback {} round trip, shm {} copy", shown(tcp), shown(shm)),
                 "a transport that fails cannot be used; check that the loopback interface is up");
}

// "tcp/lo", "tcp/eth0", "posix/memory" -> "tcp (lo, eth0), posix". A process reaches itself by "self", which is of no
// use.
std::string by_transport(const std::vector<std::string>& transports) {
  std::vector<std::pair<std::string, std::vector<std::string>>> grouped;
  for (const std::string& transport : transports) {
    std::string name = transport.substr(0, transport.find('/')), device = transport.substr(name.size());
    if (name == "self") continue;
    auto at = std::find_if(grouped.begin(), grouped.end(), [&](const auto& group) { return group.first == name; });
    if (at == grouped.end()) at = grouped.insert(at, {name, {}});
    if (device.size() > 1 && device != "/memory") at->second.push_back(device.substr(1));
  }
  std::vector<std::string> shown;
  for (const auto& [name, devices] : grouped)
    shown.push_back(devices.empty() ? name : fmt::format("{} ({})", name, fmt::join(devices, ", ")));
  return fmt::format("{}", fmt::join(shown, ", "));
}

// UCX is needed for ucx:// addresses only, so its absence is no mistake.
Finding check_ucx() {
  auto installation = find_installation();
  if (!installation.ok()) return finding("ucx", Health::kLimited, "not found", installation.status().text());
  auto found = ucx::survey({installation->ucx_helper(), "all"});
  if (!found.ok() && found.status().code() == ENOENT)
    return finding("ucx", Health::kLimited, "not installed",
                   fmt::format("only ucx:// addresses need it; {}", found.status().text()));
  if (!found.ok()) return finding("ucx", Health::kLimited, "cannot be used", found.status().text());
  bool good = found->has_card && found->pages_on_demand;
  return finding("ucx", health_of(good, Health::kLimited),
                 fmt::format("UCX {}, transports and devices: {}", found->version, by_transport(found->transports)),
                 found->has_card
                     ? "the network card cannot fault pages in on demand: it serves clients, but not servers"
                     : "no network card with RDMA: ucx:// works over --tune ucx=tcp, on trusted networks only");
}

}  // namespace

bool Diagnosis::usable() const {
  auto missing = [](const Finding& finding) { return finding.health == Health::kMissing; };
  return choice.usable && std::none_of(findings.begin(), findings.end(), missing);
}

Diagnosis diagnose(const Options& options) {
  bool by_syscall = userfaultfd_by_syscall(), by_device = userfaultfd_by_device();
  FaultAbilities abilities = {pages_for_itself(), traps_system_calls(), by_syscall || by_device};
  Diagnosis diagnosis;
  diagnosis.choice = choose_mode(abilities);
  diagnosis.findings = {check_kernel(),
                        check_userfaultfd(by_syscall, by_device, userfaultfd_user_mode_only()),
                        check_features(userfaultfd_features()),
                        check_self_paging(abilities.self_paging),
                        check_dispatch(abilities.traps_syscalls),
                        check_batches(),
                        check_huge_pages(userfaultfd_features()),
                        check_pipe(),
                        check_memory_files(),
                        check_memory_file_pages(),
                        check_file_requests(),
                        check_space(options.space),
                        check_limits(),
                        check_seccomp(),
                        check_cores(),
                        check_memory(),
                        check_transports(),
                        check_ucx(),
                        check_library(),
                        check_write_tracking(),
                        check_comparisons()};
  return diagnosis;
}

int kernel_number(const std::string& release) {
  int major = 0, minor = 0;
  return sscanf(release.c_str(), "%d.%d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

const char* health_name(Health health) {
  constexpr const char* kNames[] = {"ok", "limited", "missing"};
  return kNames[static_cast<int>(health)];
}

}  // namespace farside::cli
