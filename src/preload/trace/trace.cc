#include "preload/trace/trace.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/trace_file.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "preload/trace/trace_python.h"
#include "preload/trace/trace_reads.h"
#include "preload/trace/trace_sites.h"
#include "preload/trace/trace_stacks.h"

namespace farside::preload {

bool g_tracing = false;

namespace {

constexpr uint64_t kMaxEntries = 32768;
constexpr uint64_t kEntriesWhenCrowded = kMaxEntries / 4 * 3;  // with this many, all threads share new entries
constexpr uint64_t kMaxHints = 4096;
constexpr unsigned kProbes = 32;
constexpr size_t kLargeAllocation = 16 * kKiB;  // from this size on, every allocation is recorded
constexpr int64_t kSampleEvery = 4096;          // bytes of smaller allocations between two that are recorded
constexpr uint64_t kChaseEvery = 4;             // one of this many random faults is examined for pointers
constexpr uint64_t kChaseAround = 256;          // bytes before and after a fault in which a pointer is searched
constexpr uint64_t kChaseReach = 256;           // the next fault may be this far behind the pointer's target

struct Recorder {
  pager::Pager* pager = nullptr;
  TraceEntry* entries = nullptr;
  TraceHint* hints = nullptr;
  std::atomic<uint64_t> entry_count{0};
  std::atomic<uint64_t> dropped{0};
  std::atomic<bool> written{false};
  char file[256] = "";
};
Recorder g_recorder;

// Bytes that this thread can still allocate in small allocations before one is recorded; and the distance between the
// last two records.
__attribute__((tls_model("initial-exec"))) thread_local int64_t t_until_sample = 0;
__attribute__((tls_model("initial-exec"))) thread_local int64_t t_sample_period = 0;

// ---- Faults ----

StackRegisters registers_of(const ucontext_t* context) {
  constexpr int kOrder[kTraceRegisters] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                           REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                           REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  StackRegisters registers;
  for (unsigned i = 0; i < kTraceRegisters; i++)
    registers.value[i] = static_cast<uint64_t>(context->uc_mcontext.gregs[kOrder[i]]);
  return registers;
}

// The kind of a fault, judged by the page word before it is served. A page that is being fetched or evicted, or that
// another thread has just fetched, counts as fetched.
TraceKind kind_of(pager::PageWord word, bool write) {
  if (word.is(pager::PageState::kUntouched)) return TraceKind::kAllocation;
  bool present = word.is(pager::PageState::kNear);
  if (present && write && !word.writable()) return TraceKind::kProtection;
  return write ? TraceKind::kWrite : TraceKind::kRead;
}

TraceEntry* entry_at(uint64_t stack, TraceKind kind, uint32_t thread) {
  uint64_t key = (stack ^ thread * uint64_t{0x9e3779b97f4a7c15} ^ static_cast<uint64_t>(kind) << 61) | 1;
  for (unsigned i = 0; i < kProbes; i++) {
    TraceEntry& entry = g_recorder.entries[((key >> 20) + i) % kMaxEntries];
    std::atomic_ref<uint64_t> place(entry.key);
    uint64_t found = place.load(std::memory_order_acquire);
    if (found == key) return &entry;
    if (found != 0 || !place.compare_exchange_strong(found, key, std::memory_order_acq_rel)) continue;
    g_recorder.entry_count.fetch_add(1, std::memory_order_relaxed);
    entry.kind = kind;
    entry.thread = thread;
    std::atomic_ref(entry.stack).store(stack, std::memory_order_release);
    return &entry;
  }
  return nullptr;
}

void count_site(TraceEntry& entry, uint64_t site) {
  if (site == 0) return;
  TraceEntry::SiteCount* empty = nullptr;
  for (auto& s : entry.sites) {
    if (s.count > 0 && s.site == site - 1) {
      s.count++;
      return;
    }
    if (s.count == 0) empty = &s;
  }
  if (empty) {
    *empty = {site - 1, 1};
    return;
  }
  for (auto& s : entry.sites) s.count--;
}

// Evidence of a pointer chase: the memory around the previous fault contains the address of this one, or one up to
// kChaseReach below it (this fault is at a field of the object). The page of the previous fault was just used, so it is
// almost always near; otherwise the read fails and nothing is counted.
void look_for_pointer(TracePattern& pattern, uint64_t before, uint64_t address) {
  uint64_t words[2 * kChaseAround / 8];
  uint64_t page = align_down(before, kPageSize);
  uint64_t begin = std::max(align_down(before, 8) - kChaseAround, page);
  uint64_t end = std::min(align_down(before, 8) + kChaseAround, page + kPageSize);
  size_t got = read_safely(begin, words, end - begin);
  if (got == 0) return;
  pattern.chase_checked++;
  for (size_t i = 0; i < got / 8; i++) {
    if (address - words[i] >= kChaseReach) continue;
    pattern.chase_found++;
    return;
  }
}

void note_fault(TraceEntry& entry, uint64_t address) {
  std::atomic_ref(entry.count).fetch_add(1, std::memory_order_relaxed);
  count_site(entry, site_at(address));
  TracePattern& pattern = entry.pattern;
  uint64_t before = pattern.last;
  TraceStep step = note_access(pattern, address, [](int64_t page) {
    uint64_t at = static_cast<uint64_t>(page) * kPageSize;
    return g_recorder.pager->table().contains(at) && g_recorder.pager->table().word(at).is(pager::PageState::kNear);
  });
  // Code that writes may have written the pointer itself, so only reads are examined.
  bool reads = entry.kind == TraceKind::kRead;
  if (reads && step == TraceStep::kRandom && pattern.random % kChaseEvery == 0)
    look_for_pointer(pattern, before, address);
}

// ---- Allocations ----

// The registers at this point. The unwinder continues from here through Farside's frames.
__attribute__((always_inline)) inline StackRegisters registers_here() {
  StackRegisters registers = {};
  uint64_t* r = registers.value;
  asm volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2"
               : "=r"(r[kTraceRip]), "=m"(r[kTraceRsp]), "=m"(r[kTraceRbp]));
  asm volatile("movq %%rbx, %0\n\tmovq %%r12, %1\n\tmovq %%r13, %2\n\tmovq %%r14, %3\n\tmovq %%r15, %4"
               : "=m"(r[3]), "=m"(r[12]), "=m"(r[13]), "=m"(r[14]), "=m"(r[15]));
  return registers;
}

// Whether a small allocation is recorded; about one in kSampleEvery bytes is. *bytes_represented: the bytes since the
// last record. The distance varies, so that programs with a periodic pattern are sampled fairly.
bool is_sampled(size_t bytes, uint64_t* bytes_represented) {
  t_until_sample -= static_cast<int64_t>(bytes);
  if (t_until_sample > 0) return false;
  *bytes_represented = static_cast<uint64_t>(t_sample_period - t_until_sample);
  t_sample_period = kSampleEvery / 2 + static_cast<int64_t>(ticks() * 0x9e3779b97f4a7c15 >> 52) * kSampleEvery / 4096;
  t_until_sample = t_sample_period;
  return true;
}

// ---- The file ----

// A buffer that combines small records into large writes.
class Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}
  void put(const void* data, size_t bytes) {
    if (used_ + bytes > sizeof buffer_) flush();
    if (bytes > sizeof buffer_) return write(data, bytes);
    memcpy(buffer_ + used_, data, bytes);
    used_ += bytes;
  }
  void flush() { write(buffer_, std::exchange(used_, 0)); }

 private:
  void write(const void* data, size_t bytes) {
    auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      ssize_t n = os::write(fd_, from, bytes);
      if (n == -EINTR) continue;
      if (n <= 0) return;  // the disk is full: the reader reports an incomplete block
      from += n;
      bytes -= static_cast<size_t>(n);
    }
  }
  int fd_;
  size_t used_ = 0;
  char buffer_[8 * kKiB];
};

template <typename T, typename IsUsed>
uint64_t count_used(const T* table, uint64_t places, IsUsed is_used) {
  return static_cast<uint64_t>(std::count_if(table, table + places, is_used));
}

template <typename T, typename IsUsed>
void put_used(Writer& writer, const T* table, uint64_t places, uint64_t count, IsUsed is_used) {
  for (uint64_t i = 0; i < places && count > 0; i++) {
    if (!is_used(table[i])) continue;
    writer.put(&table[i], sizeof table[i]);
    count--;
  }
}

bool entry_used(const TraceEntry& e) { return e.stack != 0 && e.count != 0; }
bool stack_used(const TraceStack& s) { return s.registers[kTraceRip] != 0; }
bool hint_used(const TraceHint& h) { return h.return_address != 0; }

constexpr size_t kMaxMaps = 4 * kMiB;

size_t read_all(const char* path, char* to, size_t room) {
  int fd = os::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t length = 0;
  while (length < room) {
    ssize_t n = os::read(fd, to + length, room - length);
    if (n <= 0) break;
    length += static_cast<size_t>(n);
  }
  os::close(fd);
  return length;
}

void write_block(int fd) {
  char program[4096];
  long program_bytes = os::call(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, sizeof program);
  auto* maps = static_cast<char*>(os::map_near(kMaxMaps));
  TraceHeader header = {};
  header.magic = kTraceMagic;
  header.version = kTraceVersion;
  header.pid = traced_process();
  header.entries = count_used(g_recorder.entries, kMaxEntries, entry_used);
  header.stacks = count_used(trace_stacks(), kMaxTraceStacks, stack_used);
  header.sites = kMaxTraceSites;
  header.hints = count_used(g_recorder.hints, kMaxHints, hint_used);
  const TracePythonCode* codes = python_codes(&header.python_codes);
  const TracePythonFrame* frames = python_frames(&header.python_frames);
  const std::byte* text = python_text(&header.python_text_bytes);
  header.stack_bytes = trace_stack_bytes_used();
  header.maps_bytes = maps ? read_all("/proc/self/maps", maps, kMaxMaps) : 0;
  header.program_bytes = program_bytes > 0 ? static_cast<uint64_t>(program_bytes) : 0;
  header.dropped = g_recorder.dropped.load();
  header.near_limit_bytes = g_recorder.pager->frames().limit() * kPageSize;
  Writer writer(fd);
  writer.put(&header, sizeof header);
  put_used(writer, g_recorder.entries, kMaxEntries, header.entries, entry_used);
  put_used(writer, trace_stacks(), kMaxTraceStacks, header.stacks, stack_used);
  writer.put(trace_sites(), kMaxTraceSites * sizeof(TraceSite));
  put_used(writer, g_recorder.hints, kMaxHints, header.hints, hint_used);
  writer.put(codes, header.python_codes * sizeof *codes);
  writer.put(frames, header.python_frames * sizeof *frames);
  writer.put(trace_stack_bytes(), header.stack_bytes);
  writer.put(text, header.python_text_bytes);
  writer.put(maps, header.maps_bytes);
  writer.put(program, header.program_bytes);
  writer.flush();
  os::unmap(maps, kMaxMaps);
}

}  // namespace

Status start_trace(const char* file, pager::Pager* pager) {
  Recorder& r = g_recorder;
  r.pager = pager;
  memcpy(r.file, file, std::min(strlen(file), sizeof r.file - 1));
  r.entries = static_cast<TraceEntry*>(os::map_near(kMaxEntries * sizeof(TraceEntry)));
  r.hints = static_cast<TraceHint*>(os::map_near(kMaxHints * sizeof(TraceHint)));
  if (!r.entries || !r.hints) {
    return Status::error(ENOMEM, "no memory for the tables of a trace; raise the limit on virtual memory");
  }
  auto far_begin = reinterpret_cast<uint64_t>(pager->space().base());
  Status python = start_python(pager);
  if (!python.ok()) return python;
  Status stacks = start_stacks(far_begin, pager->space().bytes());
  if (!stacks.ok()) return stacks;
  Status sites = start_sites(far_begin, pager->space().bytes());
  if (!sites.ok()) return sites;
  g_tracing = true;
  return {};
}

void trace_fault(uint64_t address, bool write, const ucontext_t* context) {
  pager::PageWord word = g_recorder.pager->table().word(address);
  if (word.is(pager::PageState::kUnmapped)) return;  // an error of the program
  uint64_t stack = note_stack(registers_of(context));
  bool crowded = g_recorder.entry_count.load(std::memory_order_relaxed) >= kEntriesWhenCrowded;
  TraceEntry* entry = stack ? entry_at(stack, kind_of(word, write), crowded ? 0 : traced_thread()) : nullptr;
  if (entry) note_fault(*entry, address);
  else g_recorder.dropped.fetch_add(1, std::memory_order_relaxed);
}

void trace_allocation(const void* memory, size_t bytes) {
  auto address = reinterpret_cast<uint64_t>(memory);
  if (!memory || !g_recorder.pager->table().in_space(address)) return;  // the table of sites covers the far space only
  uint64_t represented = bytes;
  if (bytes < kLargeAllocation && !is_sampled(bytes, &represented)) return;
  uint64_t stack = note_stack(registers_here());
  if (stack) note_site(stack, address, bytes, represented);
}

void trace_code_change() { note_code_change(); }

void trace_hint(uint64_t, bool fetched, const void* return_address) {
  if (!tracing()) return;
  auto key = reinterpret_cast<uint64_t>(return_address);
  for (unsigned i = 0; i < kProbes; i++) {
    TraceHint& hint = g_recorder.hints[((key * 0x9e3779b97f4a7c15 >> 40) + i) % kMaxHints];
    std::atomic_ref<uint64_t> place(hint.return_address);
    uint64_t found = place.load(std::memory_order_relaxed);
    if (found == 0) place.compare_exchange_strong(found, key, std::memory_order_relaxed);
    if (place.load(std::memory_order_relaxed) != key) continue;
    std::atomic_ref(hint.calls).fetch_add(1, std::memory_order_relaxed);
    if (fetched) std::atomic_ref(hint.fetched).fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void trace_in_child() {
  if (!tracing()) return;
  Recorder& r = g_recorder;
  os::madvise(r.entries, kMaxEntries * sizeof(TraceEntry), MADV_DONTNEED);  // zeroes them
  os::madvise(r.hints, kMaxHints * sizeof(TraceHint), MADV_DONTNEED);
  r.entry_count.store(0);
  r.dropped.store(0);
  r.written.store(false);
  forget_thread_stack();
}

void write_trace() {
  if (!tracing() || g_recorder.written.exchange(true)) return;
  int fd = os::open(g_recorder.file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    log(LogLevel::kError,
        "cannot write the trace to {} (error {}): the trace of this process is lost; check permissions and free space",
        g_recorder.file, -fd);
    return;
  }
  os::call(SYS_flock, fd, LOCK_EX);  // processes that end at the same time write one after the other
  write_block(fd);
  os::close(fd);
}

}  // namespace farside::preload
