#include "preload/heap/limits.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <charconv>
#include <iterator>

#include "abi/options.h"
#include "base/bits.h"
#include "base/os.h"
#include "base/sync.h"
#include "preload/heap/mapping_list.h"

namespace farside::preload {
namespace {

struct Usage {
  uint64_t addresses = 0, data = 0;
};

uint64_t g_distance = 0;                                  // 0: far memory is not in use
std::atomic<uint64_t> g_own_addresses{0}, g_own_data{0};  // of Farside
std::atomic<bool> g_limited{false};
std::atomic<int64_t> g_heap_bytes{0};
std::atomic<uint64_t> g_mapped_addresses{0}, g_mapped_data{0};  // in the far space, when the list was last free

bool is_finite(rlim_t limit) { return limit != RLIM_INFINITY; }

rlimit kernel_limit(int resource) {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  os::call(SYS_prlimit64, 0, resource, nullptr, &limit);
  return limit;
}

bool is_at_distance(const rlimit& kernel) {
  return g_distance > 0 && kernel.rlim_cur >= g_distance && kernel.rlim_max >= g_distance;
}

// What the kernel counts: numbers of pages, the first of which is of all, the sixth of data and stacks.
Usage kernel_usage() {
  char text[256];
  int fd = os::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  long bytes = os::call(SYS_read, fd, text, sizeof text);
  os::close(fd);
  uint64_t pages[6] = {};
  const char *at = text, *end = text + (bytes > 0 ? bytes : 0);
  for (uint64_t& number : pages) {
    at = std::from_chars(at, end, number).ptr;
    if (at < end) at++;
  }
  return {pages[0] * kPageSize, pages[5] * kPageSize};
}

void count_mappings() {
  SignalsBlocked blocked;
  if (!mapping_pager() || !try_lock_mapping_list()) return;
  Usage sum;
  for (const auto& [begin, mapping] : mappings()) {
    if (!in_far_space(pointer(begin)) || mapping.kind == Kind::kForeign) continue;
    sum.addresses += mapping.end - begin;
    if (mapping.protection & PROT_WRITE) sum.data += mapping.end - begin;
  }
  unlock_mapping_list();
  g_mapped_addresses.store(sum.addresses);
  g_mapped_data.store(sum.data);
}

// Of addresses or data: the limit that the program has set, if it has.
rlim_t soft_limit_of_program(int resource) {
  rlimit kernel = kernel_limit(resource);
  return is_at_distance(kernel) ? limit_of_program(kernel).rlim_cur : RLIM_INFINITY;
}

}  // namespace

OwnMemory::OwnMemory() {
  Usage now = kernel_usage();
  addresses_ = now.addresses;
  data_ = now.data;
}

OwnMemory::~OwnMemory() {
  Usage now = kernel_usage();
  g_own_addresses.fetch_add(saturating_sub(now.addresses, addresses_));
  g_own_data.fetch_add(saturating_sub(now.data, data_));
}

// The far space, its tables and what the server stores take less than three times its size.
bool begin_limits(uint64_t space) {
  g_distance = kSpacesInLimit * space + kGiB;  // more than a limit that the run began with
  return note_limit();
}

bool is_program_limit(int resource) {
  bool is_of_memory = resource == RLIMIT_AS || resource == RLIMIT_DATA;
  return is_of_memory && is_at_distance(kernel_limit(resource));
}

rlimit limit_of_program(const rlimit& kernel) {
  auto part = [](rlim_t limit) { return is_finite(limit) ? limit - g_distance : limit; };
  return {part(kernel.rlim_cur), part(kernel.rlim_max)};
}

rlimit limit_of_kernel(const rlimit& program) {
  auto whole = [](rlim_t limit) { return limit < RLIM_INFINITY - g_distance ? limit + g_distance : RLIM_INFINITY; };
  return {whole(program.rlim_cur), whole(program.rlim_max)};
}

bool note_limit() {
  bool limited = false;
  for (int resource : {RLIMIT_AS, RLIMIT_DATA}) limited |= is_finite(soft_limit_of_program(resource));
  g_limited.store(limited);
  return limited;
}

bool is_within_limits(uint64_t bytes, Growth growth) {
  if (!g_limited.load(std::memory_order_relaxed)) return true;
  count_mappings();
  Usage used = kernel_usage();
  auto heap = static_cast<uint64_t>(g_heap_bytes.load());
  uint64_t addresses = saturating_sub(used.addresses, g_own_addresses.load()) + heap + g_mapped_addresses.load();
  uint64_t data = saturating_sub(used.data, g_own_data.load()) + heap + g_mapped_data.load();
  if (addresses + bytes > soft_limit_of_program(RLIMIT_AS)) return false;
  return growth == Growth::kAddresses || data + bytes <= soft_limit_of_program(RLIMIT_DATA);
}

namespace {

std::atomic<rlim_t> g_hard_files{RLIM_INFINITY}, g_hard_file_size{RLIM_INFINITY};
std::atomic<rlim_t>& hard_limit(int resource) { return resource == RLIMIT_NOFILE ? g_hard_files : g_hard_file_size; }

}  // namespace

bool keeps_hard_limit(int resource) {
  return g_distance > 0 && (resource == RLIMIT_NOFILE || resource == RLIMIT_FSIZE);
}
rlim_t hard_limit_of_program(int resource) { return hard_limit(resource).load(); }
void keep_hard_limit(int resource, rlim_t limit) { hard_limit(resource).store(limit); }

LimitsLifted::LimitsLifted() {
  for (size_t i = 0; i < std::size(kResources); i++) {
    before_[i] = kernel_limit(kResources[i]);
    rlimit lifted = {before_[i].rlim_max, before_[i].rlim_max};
    if (before_[i].rlim_cur < lifted.rlim_cur) os::call(SYS_prlimit64, 0, kResources[i], &lifted, nullptr);
  }
}

LimitsLifted::~LimitsLifted() {
  for (size_t i = 0; i < std::size(kResources); i++) {
    rlimit before = before_[i], now = kernel_limit(kResources[i]);  // the program may have changed it meanwhile
    bool is_lifted = now.rlim_cur == before.rlim_max && now.rlim_max == before.rlim_max;
    if (before.rlim_cur < before.rlim_max && is_lifted) os::call(SYS_prlimit64, 0, kResources[i], &before, nullptr);
  }
}

void add_heap_bytes(int64_t bytes) { g_heap_bytes.fetch_add(bytes, std::memory_order_relaxed); }

}  // namespace farside::preload
