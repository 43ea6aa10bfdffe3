// The isolated process in which a client's functions run: PREFIX/lib/farside/offload_host. The server starts it in new
// namespaces, with the descriptors of protocol.h. It gives up everything else, loads the client's objects, and then
// executes the calls that arrive on the client's connection. Foreign code runs from the loading on (its constructors),
// so nothing that follows protects the server; what is set up before does.
//
// offload_host OBJECTS MEMORY BASE USER WAY
//   OBJECTS  number of descriptors of objects
//   MEMORY   bytes that functions may allocate
//   BASE     address at which the region begins
//   USER     user and group of the namespace that it changes to
//   WAY      "direct": the connection is the client's; "relay": the server's
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/core_sharing.h"
#include "farside/offload.h"
#include "sandbox/filter.h"
#include "sandbox/protocol.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace {

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
uint64_t g_region = 0;        // address of the region's byte 0
uint64_t g_region_bytes = 0;  // without its trailer
const wire::RegionTrailer* g_trailer = nullptr;
HostState* g_state = nullptr;
bool g_is_direct = false;
farside::CoreSharing g_core(1000);

constexpr size_t kHeader = sizeof(wire::FrameHeader);
constexpr uint64_t kPollNs = 200'000;  // after a call, before the process sleeps; as servers poll for requests

// A reply as it is sent.
struct Reply {
  wire::FrameHeader header;
  wire::CallReply head;
  char result[wire::kMaxCallBytes];
};
static_assert(offsetof(Reply, result) == kHeader + sizeof(wire::CallReply));

// What was received and not used yet lies from `begin` to `end`.
struct Input {
  size_t begin, end;
  char bytes[kMaxHandover];
};
Reply g_reply;
Input g_input;
alignas(16) char g_arguments[wire::kMaxCallBytes];

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

// The region's addresses are reserved by a mapping without access, unless something else is there. Small ranges that
// are read are opened in it by mprotect, which keeps their page table entries: used again, they take no page faults.
bool g_has_base = false;
CallRange g_opened[wire::kMaxCallRanges];
uint32_t g_opened_count = 0;

void send_all(int fd, const void* data, size_t bytes) {
  for (auto* at = static_cast<const char*>(data); bytes > 0;) {
    ssize_t n = write(fd, at, bytes);
    if (n <= 0) _exit(0);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void receive_all(int fd, void* to, size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    ssize_t n = read(fd, at, bytes);
    if (n <= 0) _exit(0);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void reply_loaded(int status, const char* text = "", const char* more = "") {
  char all[256];
  int length = snprintf(all, sizeof all, "%s%s", text, more);
  HostReply reply = {status, static_cast<uint32_t>(length < 256 ? length : 255)};
  send_all(kControlFd, &reply, sizeof reply);
  send_all(kControlFd, all, reply.bytes);
}

// The first `bytes` of the result.
void reply(int status, bool started, size_t bytes) {
  g_state->phase = HostPhase::kReplies;
  g_reply.head = {status, started ? 1u : 0u, static_cast<uint32_t>(bytes), 0};
  auto payload = static_cast<uint32_t>(sizeof g_reply.head + bytes);
  g_reply.header = wire::make_header(wire::Op::kCall, wire::kFlagReply, g_state->request, payload);
  g_reply.header.crc = wire::crc32c(wire::header_crc(g_reply.header), &g_reply.head, payload);
  send_all(kConnectionFd, &g_reply, kHeader + payload);
  g_state->phase = HostPhase::kWaits;
}

void reply_error(int status, const char* text, const char* more = "") {
  int length = snprintf(g_reply.result, 256, "%s%s", text, more);
  reply(status, false, static_cast<size_t>(length < 256 ? length : 255));
}

[[noreturn]] void give_up(const char* text) {
  reply_loaded(-errno, text, strerror(errno));
  _exit(1);
}

// Bounds on what loading may take. The server sets those of functions, and limits the time.
void limit_resources(uint64_t memory, uint64_t mapped) {
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
  rlimit addresses = {kOwnAddresses + 2 * memory + mapped, RLIM_INFINITY};
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
    reply_loaded(-ENOEXEC, "the server cannot load the program or shared object: ", dlerror());
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

// Reserves the addresses of a range, whatever is there.
void reserve_place(const CallRange& r) {
  if (!g_has_base) return;
  mmap(place_of(r), r.bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, kReadOnlyFd,
       static_cast<off_t>(r.offset));
}

void drop(uint32_t index) {
  Mapping& m = g_mappings[index];
  munmap(m.at, m.range.bytes);
  if (!is_parked(m)) reserve_place(m.range);
  m = g_mappings[--g_mapping_count];
}

void close_opened() {
  while (g_opened_count > 0) {
    const CallRange& r = g_opened[--g_opened_count];
    mprotect(place_of(r), r.bytes, PROT_NONE);
  }
}

void unmap_ranges() {
  close_opened();
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
  reserve_place(m.range);
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

bool is_small(const CallRange& r) { return r.bytes < kMinParked && !r.written; }

bool map(const CallRange& r) {
  if (g_has_base && is_small(r) && mprotect(place_of(r), r.bytes, PROT_READ) == 0) {
    g_opened[g_opened_count++] = r;
    return true;
  }
  if (Mapping* m = find(r)) return !is_parked(*m) || move_to(*m, place_of(r));
  int protection = PROT_READ | (r.written ? PROT_WRITE : 0);
  void* at = mmap(place_of(r), r.bytes, protection, MAP_SHARED | (g_has_base ? MAP_FIXED : MAP_FIXED_NOREPLACE),
                  r.written ? kWritableFd : kReadOnlyFd, static_cast<off_t>(r.offset));
  if (at == MAP_FAILED) return false;
  g_mappings[g_mapping_count++] = {r, static_cast<char*>(at), true, g_calls};
  return true;
}

// Only these ranges are at their places: an access to others ends the process.
bool map_ranges(const wire::CallPayload& call) {
  uint32_t count = call.head.range_count;
  if (count == g_last_count && memcmp(g_last, call.ranges.data(), count * sizeof(CallRange)) == 0) return true;
  g_calls++;
  close_opened();
  for (uint32_t i = 0; i < g_mapping_count; i++) g_mappings[i].is_wanted = false;
  for (uint32_t i = 0; i < count; i++) {
    Mapping* m = find(wire::call_range(call.ranges, i));
    if (m) m->is_wanted = true, m->last_call = g_calls;
  }
  clear_places();
  for (uint32_t i = 0; i < count; i++) {
    if (!map(wire::call_range(call.ranges, i))) return false;
  }
  g_last_count = count;
  memcpy(g_last, call.ranges.data(), count * sizeof(CallRange));
  return true;
}

// The arguments are copied to where their alignment is that of malloc.
void execute(const wire::CallPayload& call) {
  const CallRequest& head = call.head;
  auto entry = reinterpret_cast<farside_offload_entry>(code_at(head.entry_object, head.entry));
  void* function = head.function ? code_at(head.function_object, head.function) : nullptr;
  if (!entry || (head.function && !function))
    return reply_error(-ENOEXEC, "the program or shared object has no function at this place");
  if (!map_ranges(call)) {
    int error = errno;
    unmap_ranges();
    return reply_error(-EADDRINUSE, "the server cannot map a range at its address: ", strerror(error));
  }
  memcpy(g_arguments, call.arguments.data(), head.argument_bytes);
  farside_offload_output output = {g_reply.result, sizeof g_reply.result, 0};
  int status = entry(function, g_arguments, head.argument_bytes, &output);
  reply(status < -4095 ? -EINVAL
        : status < 0   ? status
                       : 0,
        true, output.bytes < sizeof g_reply.result ? output.bytes : sizeof g_reply.result);
}

// Receives what there is, after a while of polling. With `wanted` bytes more a frame is complete.
void receive_some(size_t wanted) {
  Input& in = g_input;
  if (in.begin > 0 && (in.begin == in.end || in.end + wanted > sizeof in.bytes)) {
    memmove(in.bytes, in.bytes + in.begin, in.end - in.begin);
    in.end -= in.begin;
    in.begin = 0;
  }
  size_t room = sizeof in.bytes - in.end;
  ssize_t n = -1;
  for (uint64_t start = farside::now_ns(); n < 0 && farside::now_ns() - start < kPollNs && !g_core.is_crowded();) {
    n = recv(kConnectionFd, in.bytes + in.end, room, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) _exit(0);
    if (n < 0) g_core.yield();  // the client may need this core
  }
  if (n < 0) n = recv(kConnectionFd, in.bytes + in.end, room, 0);
  if (n <= 0) _exit(0);
  in.end += static_cast<size_t>(n);
}

// What lies at the beginning of the input: 0, a call that may be executed; more, so many bytes of a frame are missing;
// less, the server has to look at it.
ssize_t next_call(wire::FrameHeader* header, wire::CallPayload* call) {
  const char* at = g_input.bytes + g_input.begin;
  size_t there = g_input.end - g_input.begin;
  if (there < kHeader) return static_cast<ssize_t>(kHeader - there);
  memcpy(header, at, kHeader);
  if (wire::check_request_header(*header) < 0 || header->op != static_cast<uint8_t>(wire::Op::kCall)) return -1;
  if (there < kHeader + header->payload_bytes) return static_cast<ssize_t>(kHeader + header->payload_bytes - there);
  wire::Bytes payload(reinterpret_cast<const std::byte*>(at) + kHeader, header->payload_bytes);
  if (wire::crc32c(wire::header_crc(*header), payload.data(), payload.size()) != header->crc) return -1;
  if (wire::decode_call(payload, g_region_bytes, call) < 0) return -1;
  bool has_snapshots = __atomic_load_n(&g_trailer->live_overlays, __ATOMIC_ACQUIRE) != 0;
  return g_is_direct && has_snapshots ? -1 : 0;
}

// Until there is something for the server, or, as a relay, until everything is executed.
void execute_calls() {
  for (;;) {
    wire::FrameHeader header;
    wire::CallPayload call;
    ssize_t missing = next_call(&header, &call);
    if (missing < 0 || (missing > 0 && !g_is_direct)) return;
    if (missing > 0) {
      receive_some(static_cast<size_t>(missing));
      continue;
    }
    g_state->request = header.request;
    g_state->calls.fetch_add(1, std::memory_order_relaxed);
    g_state->phase = HostPhase::kExecutes;
    uint64_t changes = g_calls;
    execute(call);
    g_input.begin += kHeader + header.payload_bytes;
    // The next call most likely has other ranges than this one as well: what it would wait for is done now.
    if (g_calls != changes && g_opened_count > 0) {
      close_opened();
      g_last_count = 0;
    }
  }
}

[[noreturn]] void serve() {
  for (;;) {
    Handover handover;
    receive_all(kControlFd, &handover, sizeof handover);
    if (handover.bytes > kMaxHandover) _exit(1);
    receive_all(kControlFd, g_input.bytes, handover.bytes);
    g_input.begin = 0;
    g_input.end = handover.bytes;
    execute_calls();
    if (!g_is_direct) continue;
    handover.bytes = g_input.end - g_input.begin;
    send_all(kControlFd, &handover, sizeof handover);
    send_all(kControlFd, g_input.bytes + g_input.begin, handover.bytes);
  }
}

// The region's addresses and trailer, and the memory that is shared with the server.
void map_shared() {
  struct stat info = {};
  if (fstat(kReadOnlyFd, &info) != 0) give_up("cannot look at the region: ");
  g_region_bytes = static_cast<uint64_t>(info.st_size) - sizeof(wire::RegionTrailer);
  void* trailer =
      mmap(nullptr, sizeof *g_trailer, PROT_READ, MAP_SHARED, kReadOnlyFd, static_cast<off_t>(g_region_bytes));
  void* state = mmap(nullptr, sizeof *g_state, PROT_READ | PROT_WRITE, MAP_SHARED, kStateFd, 0);
  if (trailer == MAP_FAILED || state == MAP_FAILED) give_up("cannot map shared memory: ");
  g_has_base = mmap(reinterpret_cast<void*>(g_region), g_region_bytes, PROT_NONE,
                    MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, kReadOnlyFd, 0) != MAP_FAILED;
  g_trailer = static_cast<const wire::RegionTrailer*>(trailer);
  g_state = static_cast<HostState*>(state);
  close(kStateFd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fputs("offload_host is started by 'farside serve --offload'\n", stderr);
    return 2;
  }
  g_count = atoi(argv[1]);
  uint64_t memory = strtoull(argv[2], nullptr, 10);
  g_region = strtoull(argv[3], nullptr, 10);
  auto user = static_cast<unsigned>(atoi(argv[4]));
  g_is_direct = strcmp(argv[5], "direct") == 0;
  if (g_count < 0 || g_count > kMaxObjects) return 2;
  // Links libfarside, whose functions clients' code calls.
  if (farside_offload_servers() != 0) return 2;
  uint64_t object_bytes = 0;
  for (int i = 0; i < g_count; i++) {
    struct stat info = {};
    if (fstat(kFirstObjectFd + i, &info) == 0) object_bytes += static_cast<uint64_t>(info.st_size);
  }
  map_shared();
  farside::ticks_per_us();  // measures now: no later system call does
  leave_files(object_bytes);
  limit_resources(memory + object_bytes, g_has_base ? g_region_bytes : 0);
  leave_user(user);
  if ((errno = -install_loading_filter()) != 0) give_up("cannot install a seccomp filter: ");
  load_objects();
  if ((errno = -install_call_filter()) != 0) give_up("cannot install a seccomp filter: ");
  reply_loaded(0);
  serve();
}
