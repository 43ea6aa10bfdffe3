// The isolated process in which a client's functions run: PREFIX/lib/farside/offload_host. The server starts it in new
// namespaces, with the descriptors of protocol.h. It gives up everything else, loads the client's objects, and then
// executes calls until the socket is closed. Foreign code runs from the loading on (its constructors), so nothing that
// follows protects the server; what is set up before does.
//
// offload_host OBJECTS MEMORY BASE USER
//   OBJECTS  number of descriptors of objects
//   MEMORY   bytes that functions may allocate
//   BASE     address at which the region begins
//   USER     user and group of the namespace that it changes to
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "farside/offload.h"
#include "sandbox/filter.h"
#include "sandbox/protocol.h"

namespace {

using farside::sandbox::HostReply;
using farside::wire::CallRange;
using farside::wire::CallRequest;
using namespace farside::sandbox;
namespace wire = farside::wire;

constexpr rlim_t kStackBytes = 8 << 20;
constexpr rlim_t kOwnBytes = 32 << 20, kOwnAddresses = 256 << 20;  // of this program and its libraries
constexpr int kMaxObjects = wire::kMaxCallObjects;

struct Object {
  void* handle = nullptr;
  ElfW(Addr) base = 0;
};
Object g_objects[kMaxObjects];
int g_count = 0;
uint64_t g_region = 0;  // address of the region's byte 0

struct Buffers {
  HostReply reply;
  char result[wire::kMaxCallBytes];
  alignas(16) char request[wire::kMaxPayload];
  alignas(16) char arguments[wire::kMaxCallBytes];
};
Buffers g;

// A range of this call or an earlier one. Those that the call does not have are parked: moved to other addresses with
// their page tables, so that a later call that has them takes no page faults. An access to their places in between ends
// the process.
struct Mapping {
  CallRange range;
  char* at;            // where it is now
  bool is_wanted;      // by this call
  uint64_t last_call;  // that had it
};
constexpr uint32_t kMaxMappings = 2 * wire::kMaxCallRanges;
constexpr uint64_t kMinParked = 512 << 10;  // for less, page faults cost less than moves
constexpr uint64_t kTableBytes = 2 << 20;   // of addresses: what one page table maps
Mapping g_mappings[kMaxMappings];
uint32_t g_mapping_count = 0;
uint64_t g_calls = 0;
CallRange g_last[wire::kMaxCallRanges];  // of the last call
uint32_t g_last_count = 0;

void send_all(const void* data, size_t bytes) {
  for (auto* at = static_cast<const char*>(data); bytes > 0;) {
    ssize_t n = write(kSocketFd, at, bytes);
    if (n <= 0) _exit(0);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void reply(int status, bool started, size_t bytes) {
  g.reply = {status, started, static_cast<uint32_t>(bytes), 0};
  static_assert(offsetof(Buffers, result) == sizeof(HostReply));
  send_all(&g.reply, sizeof g.reply + bytes);
}

void reply_error(int status, bool started, const char* text, const char* more = "") {
  int length = snprintf(g.result, 256, "%s%s", text, more);
  reply(status, started, static_cast<size_t>(length < 256 ? length : 255));
}

[[noreturn]] void give_up(const char* text) {
  reply_error(-errno, false, text, strerror(errno));
  _exit(1);
}

// Bounds on what loading, and later a function, may take. The server changes RLIMIT_AS for each call, and limits the
// time.
void limit_resources(uint64_t memory) {
  auto limit = [](__rlimit_resource what, rlim_t value) {
    rlimit both = {value, value};
    setrlimit(what, &both);
  };
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NPROC, 0);
  limit(RLIMIT_MEMLOCK, 0);
  limit(RLIMIT_MSGQUEUE, 0);
  limit(RLIMIT_STACK, kStackBytes);
  limit(RLIMIT_DATA, kOwnBytes + memory);
  rlimit addresses = {kOwnAddresses + 2 * memory, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &addresses);
}

// The root becomes a file system of its own that holds the objects and nothing else, and can be read only.
void leave_files(uint64_t object_bytes) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) give_up("cannot make mounts private: ");
  char options[64];
  snprintf(options, sizeof options, "size=%llu,nr_inodes=32,mode=755",
           static_cast<unsigned long long>(object_bytes + (1 << 20)));
  if (mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, options) != 0 || chdir("/proc") != 0)
    give_up("cannot mount an empty file system: ");
  for (int i = 0; i < g_count; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d.so", i);
    int from = kFirstObjectFd + i, to = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0555);
    off_t at = 0;
    struct stat info = {};
    if (to < 0 || fstat(from, &info) != 0) give_up("cannot store an object: ");
    while (at < info.st_size) {
      if (copy_file_range(from, &at, to, nullptr, static_cast<size_t>(info.st_size - at), 0) > 0) continue;
      char part[1 << 16];
      ssize_t n = pread(from, part, sizeof part, at);
      if (n <= 0 || write(to, part, static_cast<size_t>(n)) != n) give_up("cannot store an object: ");
      at += n;
    }
    close(to);
    close(from);
  }
  if (syscall(SYS_pivot_root, ".", ".") == 0) {
    if (umount2(".", MNT_DETACH) != 0) give_up("cannot leave the files of the server: ");
  } else if (mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0) {
    give_up("cannot leave the files of the server: ");
  }
  if (chdir("/") != 0 || mount(nullptr, "/", nullptr, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) != 0)
    give_up("cannot make the objects read-only: ");
}

// The process has all capabilities of its namespaces until now.
void leave_user(unsigned user) {
  for (int capability = 0; prctl(PR_CAPBSET_DROP, capability) == 0; capability++) {}
  prctl(PR_SET_SECUREBITS,
        SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED);
  if (syscall(SYS_setresgid, user, user, user) != 0 || syscall(SYS_setresuid, user, user, user) != 0)
    give_up("cannot change the user: ");
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) give_up("cannot give up capabilities: ");
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up("cannot set no_new_privs: ");
}

void load_objects() {
  for (int i = 0; i < g_count; i++) {
    char name[16];
    snprintf(name, sizeof name, "/%d.so", i);
    Object& object = g_objects[i];
    object.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    link_map* map = nullptr;
    if (object.handle && dlinfo(object.handle, RTLD_DI_LINKMAP, &map) == 0) {
      object.base = map->l_addr;
      continue;
    }
    reply_error(-ENOEXEC, false, "the server cannot load the program or shared object: ", dlerror());
    _exit(1);
  }
}

// The address of an offset that lies in code of an object; null: it does not.
void* code_at(uint32_t object, uint64_t offset) {
  if (object >= static_cast<uint32_t>(g_count)) return nullptr;
  struct Search {
    ElfW(Addr) base, offset;
    bool found;
  } search = {g_objects[object].base, offset, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        if (info->dlpi_addr != s->base) return 0;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const ElfW(Phdr)& p = info->dlpi_phdr[i];
          bool code = p.p_type == PT_LOAD && (p.p_flags & PF_X);
          s->found |= code && s->offset >= p.p_vaddr && s->offset - p.p_vaddr < p.p_memsz;
        }
        return 1;
      },
      &search);
  return search.found ? reinterpret_cast<void*>(search.base + offset) : nullptr;
}

char* place_of(const CallRange& range) { return reinterpret_cast<char*>(g_region + range.offset); }
bool is_parked(const Mapping& m) { return m.at != place_of(m.range); }

void drop(uint32_t index) {
  munmap(g_mappings[index].at, g_mappings[index].range.bytes);
  g_mappings[index] = g_mappings[--g_mapping_count];
}

void unmap_ranges() {
  while (g_mapping_count > 0) drop(0);
  g_last_count = 0;
}

bool move_to(Mapping& m, char* to) {
  if (mremap(m.at, m.range.bytes, m.range.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) return false;
  m.at = to;
  return true;
}

// At the same place within a page table, so that the kernel moves whole ones.
bool park(Mapping& m) {
  if (m.range.bytes < kMinParked || m.range.bytes > kParkedAddresses) return false;
  uint64_t bytes = m.range.bytes + kTableBytes;
  void* spare = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (spare == MAP_FAILED) return false;
  auto* begin = static_cast<char*>(spare);
  char* to = begin + (g_region + m.range.offset - reinterpret_cast<uint64_t>(begin)) % kTableBytes;
  bool moved = move_to(m, to);
  if (!moved) return munmap(spare, bytes), false;
  if (to > begin) munmap(begin, static_cast<size_t>(to - begin));
  munmap(to + m.range.bytes, bytes - m.range.bytes - static_cast<uint64_t>(to - begin));
  return true;
}

// Parks what the call does not want. What has not been used for longest is unmapped where there is too much.
void clear_places() {
  for (uint32_t i = 0; i < g_mapping_count;) {
    Mapping& m = g_mappings[i];
    if (!m.is_wanted && !is_parked(m) && !park(m)) drop(i);
    else i++;
  }
  for (;;) {
    uint64_t parked = 0;
    uint32_t oldest = kMaxMappings, count = 0;
    for (uint32_t i = 0; i < g_mapping_count; i++) {
      if (g_mappings[i].is_wanted) continue;
      parked += g_mappings[i].range.bytes;
      count++;
      if (oldest == kMaxMappings || g_mappings[i].last_call < g_mappings[oldest].last_call) oldest = i;
    }
    if (parked <= kParkedAddresses && count <= kMaxMappings - wire::kMaxCallRanges) return;
    drop(oldest);
  }
}

Mapping* find(const CallRange& range) {
  for (uint32_t i = 0; i < g_mapping_count; i++) {
    if (memcmp(&g_mappings[i].range, &range, sizeof range) == 0) return &g_mappings[i];
  }
  return nullptr;
}

bool map(const CallRange& r) {
  if (Mapping* m = find(r)) return !is_parked(*m) || move_to(*m, place_of(r));
  int protection = PROT_READ | (r.written ? PROT_WRITE : 0);
  void* at = mmap(place_of(r), r.bytes, protection, MAP_SHARED | MAP_FIXED_NOREPLACE,
                  r.written ? kWritableFd : kReadOnlyFd, static_cast<off_t>(r.offset));
  if (at == MAP_FAILED) return false;
  g_mappings[g_mapping_count++] = {r, static_cast<char*>(at), true, g_calls};
  return true;
}

CallRange range_at(uint32_t index) {
  CallRange r;
  memcpy(&r, g.request + sizeof(CallRequest) + index * sizeof r, sizeof r);
  return r;
}

// Only these ranges are at their places: an access to others ends the process.
bool map_ranges(const CallRequest& head) {
  const char* ranges = g.request + sizeof head;
  if (head.range_count == g_last_count && memcmp(g_last, ranges, g_last_count * sizeof(CallRange)) == 0) return true;
  g_calls++;
  for (uint32_t i = 0; i < g_mapping_count; i++) g_mappings[i].is_wanted = false;
  for (uint32_t i = 0; i < head.range_count; i++) {
    Mapping* m = find(range_at(i));
    if (m) m->is_wanted = true, m->last_call = g_calls;
  }
  clear_places();
  for (uint32_t i = 0; i < head.range_count; i++) {
    if (!map(range_at(i))) return false;
  }
  g_last_count = head.range_count;
  memcpy(g_last, ranges, g_last_count * sizeof(CallRange));
  return true;
}

// The arguments are copied to where their alignment is that of malloc.
void execute(const CallRequest& head) {
  auto entry = reinterpret_cast<farside_offload_entry>(code_at(head.entry_object, head.entry));
  void* function = head.function ? code_at(head.function_object, head.function) : nullptr;
  if (!entry || (head.function && !function))
    return reply_error(-ENOEXEC, false, "the program or shared object has no function at this place");
  if (!map_ranges(head)) {
    int error = errno;
    unmap_ranges();
    return reply_error(-EADDRINUSE, false, "the server cannot map a range at its address: ", strerror(error));
  }
  memcpy(g.arguments, g.request + sizeof head + head.range_count * sizeof(CallRange), head.argument_bytes);
  farside_offload_output output = {g.result, sizeof g.result, 0};
  int status = entry(function, g.arguments, head.argument_bytes, &output);
  reply(status < -4095 ? -EINVAL
        : status < 0   ? status
                       : 0,
        true, output.bytes < sizeof g.result ? output.bytes : sizeof g.result);
}

void receive_all(char* to, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = read(kSocketFd, to, bytes);
    if (n <= 0) _exit(0);
    to += n;
    bytes -= static_cast<size_t>(n);
  }
}

[[noreturn]] void execute_calls() {
  for (;;) {
    CallRequest head;
    receive_all(g.request, sizeof head);
    memcpy(&head, g.request, sizeof head);
    receive_all(g.request + sizeof head, head.range_count * sizeof(CallRange) + head.argument_bytes);
    execute(head);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fputs("offload_host is started by 'farside serve --offload'\n", stderr);
    return 2;
  }
  g_count = atoi(argv[1]);
  uint64_t memory = strtoull(argv[2], nullptr, 10);
  g_region = strtoull(argv[3], nullptr, 10);
  auto user = static_cast<unsigned>(atoi(argv[4]));
  if (g_count < 0 || g_count > kMaxObjects) return 2;
  // Links libfarside, whose functions clients' code calls.
  if (farside_offload_servers() != 0) return 2;
  uint64_t object_bytes = 0;
  for (int i = 0; i < g_count; i++) {
    struct stat info = {};
    if (fstat(kFirstObjectFd + i, &info) == 0) object_bytes += static_cast<uint64_t>(info.st_size);
  }
  leave_files(object_bytes);
  limit_resources(memory + object_bytes);
  leave_user(user);
  if ((errno = -install_loading_filter()) != 0) give_up("cannot install a seccomp filter: ");
  load_objects();
  if ((errno = -install_call_filter()) != 0) give_up("cannot install a seccomp filter: ");
  reply(0, false, 0);
  execute_calls();
}
