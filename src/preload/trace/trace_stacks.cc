#include "preload/trace/trace_stacks.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/bits.h"
#include "base/os.h"
#include "base/thread_storage.h"
#include "preload/trace/trace_python.h"
#include "preload/trace/trace_reads.h"

// glibc: the stack pointer at the start of the program. Only arguments and environment are above it.
extern "C" void* __libc_stack_end;

namespace farside::preload {
namespace {

constexpr size_t kMaxCopied = 16 * kKiB;
constexpr size_t kScannedWords = 1024;
constexpr size_t kScannedWhenCrowded = 64;  // when the table fills up, more stacks are treated as the same
constexpr uint64_t kCrowded = kMaxTraceStacks / 2, kNearlyFull = kMaxTraceStacks / 8 * 7;
constexpr size_t kForeignWords = 512;  // of a stack that is not the thread's own
constexpr unsigned kProbes = 32;
constexpr unsigned kMaxLookups = 64;    // of a thread's stack, each of which reads /proc/self/maps
constexpr unsigned kMaxCodeMaps = 256;  // versions; old ones are not freed, since other threads may be reading them

// ---- /proc/self/maps ----

struct Mapping {
  uint64_t begin, end;
  bool executable, stack;
};

uint64_t parse_hex(std::string_view* text) {
  uint64_t value = 0;
  for (; !text->empty(); text->remove_prefix(1)) {
    char c = text->front();
    if (c >= '0' && c <= '9') value = value * 16 + static_cast<uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f') value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
    else break;
  }
  return value;
}

// "55d0c0-55d0c8 r-xp 00002000 08:01 123 /usr/bin/cat"
Mapping parse_mapping(std::string_view line) {
  Mapping m = {};
  m.begin = parse_hex(&line);
  line.remove_prefix(std::min<size_t>(1, line.size()));
  m.end = parse_hex(&line);
  // The unwinder cannot use code that is not readable, but its addresses still distinguish stacks.
  m.executable = line.size() > 3 && line[3] == 'x';
  m.stack = line.ends_with("[stack]");
  return m;
}

// Calls visit(mapping) for each mapping. By system calls only, because libc's functions allocate.
template <typename Visit>
void for_each_mapping(Visit visit) {
  char buffer[2048];
  int fd = os::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  size_t held = 0;
  for (;;) {
    ssize_t got = os::read(fd, buffer + held, sizeof buffer - held);
    if (got <= 0) break;
    held += static_cast<size_t>(got);
    std::string_view text(buffer, held);
    for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
      visit(parse_mapping(text.substr(0, end)));
    held = text.size() == sizeof buffer ? 0 : text.size();  // a line longer than the buffer is skipped
    memmove(buffer, text.data(), held);
  }
  os::close(fd);
}

// ---- Executable addresses ----

struct CodeRange {
  uint64_t begin, end;
  bool contains(uint64_t address) const { return address - begin < end - begin; }
};
CodeRange g_interpreter = {0, 0};  // of Python

// The executable mappings, and a filter that is tested first: one bit for each 64 KiB of addresses, folded into 4096
// bits.
struct CodeMap {
  static constexpr unsigned kMax = 2000;
  uint64_t filter[64];
  uint32_t count;
  CodeRange ranges[kMax];

  static unsigned fold(uint64_t address) { return (address >> 16) & 4095; }
  bool contains(uint64_t address) const {
    unsigned bit = fold(address);
    if (!(filter[bit / 64] >> (bit % 64) & 1)) return false;
    const CodeRange* next =
        std::upper_bound(ranges, ranges + count, address, [](uint64_t a, const CodeRange& r) { return a < r.begin; });
    return next != ranges && address < next[-1].end;
  }
  void add(uint64_t begin, uint64_t end) {
    if (count == kMax) return;
    ranges[count++] = {begin, end};
    for (uint64_t a = begin; a < end && a - begin < (uint64_t{4096} << 16); a += 1 << 16)
      filter[fold(a) / 64] |= uint64_t{1} << (fold(a) % 64);
    filter[fold(end - 1) / 64] |= uint64_t{1} << (fold(end - 1) % 64);
  }
};

std::atomic<CodeMap*> g_code{nullptr};
std::atomic<bool> g_code_stale{true};
std::atomic<bool> g_code_busy{false};
uint64_t g_far_begin = 0, g_far_bytes = 0;
unsigned g_code_maps = 0;  // guarded by g_code_busy

// Reads the mappings again, unless another thread does; the caller then uses the present version.
void refresh_code() {
  if (g_code_busy.exchange(true, std::memory_order_acquire)) return;
  if (g_code_maps < kMaxCodeMaps) {
    if (auto* code = static_cast<CodeMap*>(os::map_near(sizeof(CodeMap)))) {
      g_code_maps++;
      g_code_stale.store(false, std::memory_order_relaxed);
      for_each_mapping([&](const Mapping& m) {
        if (m.executable) code->add(m.begin, m.end);
      });
      g_code.store(code, std::memory_order_release);
    }
  }
  g_code_busy.store(false, std::memory_order_release);
}

const CodeMap& code_around(uint64_t ip) {
  const CodeMap* code = g_code.load(std::memory_order_acquire);
  if (!g_code_stale.load(std::memory_order_relaxed) && code->contains(ip)) return *code;
  refresh_code();
  return *g_code.load(std::memory_order_acquire);
}

// ---- The thread's own stack ----

struct TracedThread {
  uint64_t stack_low, stack_high;  // words in between can be read; 0: unknown
  uint32_t tid;
  uint32_t lookups;
};
__attribute__((tls_model("initial-exec"))) thread_local TracedThread t_traced;
TracedThread& this_traced() { return of_this_thread(t_traced); }

uint64_t thread_pointer() {
  uint64_t value;
  asm("movq %%fs:0, %0" : "=r"(value));
  return value;
}

// The main thread's stack has a name in /proc/self/maps. The stack of any other thread has libc's thread descriptor at
// its top, in the same mapping. Other stacks (coroutines, alternate stacks) may be unmapped at any time and are not
// stored.
void find_own_stack(TracedThread& t, uint64_t sp) {
  t.lookups++;
  uint64_t descriptor = thread_pointer();
  for_each_mapping([&](const Mapping& m) {
    if (sp < m.begin || sp >= m.end) return;
    bool own = descriptor > sp && descriptor < m.end;
    if (!m.stack && !own) return;
    auto stack_begin = reinterpret_cast<uint64_t>(__libc_stack_end);
    t.stack_low = m.begin;
    t.stack_high = !m.stack                                       ? descriptor
                   : stack_begin > m.begin && stack_begin < m.end ? align_down(stack_begin, 8)
                                                                  : m.end;
  });
}

bool on_own_stack(uint64_t sp) {
  TracedThread& t = this_traced();
  auto inside = [&] { return sp >= t.stack_low && sp < t.stack_high; };
  if (inside()) return true;
  if (sp - g_far_begin < g_far_bytes) return false;  // its pages may be absent
  if (t.lookups < kMaxLookups) find_own_stack(t, sp);
  return inside();
}

// ---- Distinguishing stacks ----

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

std::atomic<uint64_t> g_stack_count{0};

// What still distinguishes stacks; 0: only where the fault is.
size_t scanned_words() {
  uint64_t stacks = g_stack_count.load(std::memory_order_relaxed);
  return stacks < kCrowded ? kScannedWords : stacks < kNearlyFull ? kScannedWhenCrowded : 0;
}

// Where the Python frames are known, addresses in the interpreter do not distinguish stacks: its functions leave many
// outdated ones.
uint64_t hash_words(const CodeMap& code, uint64_t hash, const uint64_t* words, size_t count, bool in_python) {
  count = std::min(count, scanned_words());
  for (size_t i = 0; i < count; i++) {
    if (!code.contains(words[i]) || (in_python && g_interpreter.contains(words[i]))) continue;
    hash = mix(hash, words[i]);
  }
  return hash ? hash : 1;
}

uint64_t hash_python(uint64_t ip, const PythonStack& python) {
  uint64_t hash = mix(1, ip);
  unsigned count = scanned_words() > 0 ? python.count : std::min(python.count, 1U);
  for (unsigned i = 0; i < count; i++) hash = mix(mix(hash, python.frames[i].code), python.frames[i].instruction);
  return hash;
}

__attribute__((noinline)) uint64_t hash_foreign(const CodeMap& code, uint64_t hash, uint64_t sp, bool in_python) {
  uint64_t words[kForeignWords];
  size_t got = read_safely(align_up(sp, 8), words, sizeof words);
  return hash_words(code, hash, words, got / 8, in_python);
}

// ---- The copies ----

TraceStack* g_stacks = nullptr;
std::byte* g_bytes = nullptr;
std::atomic<uint64_t> g_bytes_used{0};

void copy_stack(TraceStack* stack, const StackRegisters& registers, bool own) {
  memcpy(stack->registers, registers.value, sizeof stack->registers);
  uint64_t sp = registers.sp();
  uint64_t wanted = own ? std::min<uint64_t>(kMaxCopied, this_traced().stack_high - sp) : kMaxCopied;
  uint64_t at = g_bytes_used.fetch_add(align_up(wanted, 16));
  if (at + wanted > kMaxStackBytes) return;  // only the innermost frame is recorded
  stack->offset = at;
  if (own) memcpy(g_bytes + at, reinterpret_cast<void*>(sp), wanted);
  stack->bytes = own ? wanted : read_safely(sp, g_bytes + at, wanted);
}

uint64_t keep(uint64_t key, const StackRegisters& registers, bool own, const PythonStack& python) {
  for (unsigned i = 0; i < kProbes; i++) {
    TraceStack& stack = g_stacks[(key + i) % kMaxTraceStacks];
    std::atomic_ref<uint64_t> place(stack.key);
    uint64_t found = place.load(std::memory_order_acquire);
    if (found == 0 && place.compare_exchange_strong(found, key, std::memory_order_acq_rel)) {
      g_stack_count.fetch_add(1, std::memory_order_relaxed);
      copy_stack(&stack, registers, own);
      keep_python_stack(python, &stack);
      return key;
    }
    if (found == key) return key;
  }
  return 0;
}

}  // namespace

Status start_stacks(uint64_t far_begin, uint64_t far_bytes) {
  g_far_begin = far_begin;
  g_far_bytes = far_bytes;
  g_stacks = static_cast<TraceStack*>(os::map_near(kMaxTraceStacks * sizeof(TraceStack)));
  g_bytes = static_cast<std::byte*>(os::map_near(kMaxStackBytes));
  if (!g_stacks || !g_bytes) {
    return Status::error(ENOMEM, "no memory for the tables of a trace; raise the limit on virtual memory");
  }
  refresh_code();
  if (!g_code.load())
    return Status::error(ENOMEM, "no memory for the tables of a trace; raise the limit on virtual memory");
  for_each_mapping([](const Mapping& m) {
    if (CodeRange range = {m.begin, m.end}; range.contains(python_code_address())) g_interpreter = range;
  });
  return {};
}

uint64_t note_stack(const StackRegisters& registers) {
  const CodeMap& code = code_around(registers.ip());
  uint64_t sp = registers.sp();
  bool own = on_own_stack(sp);
  uint64_t first = align_up(sp, 8);
  PythonStack python;
  read_python_stack(&python);
  uint64_t hash = hash_python(registers.ip(), python);
  bool in_python = python.count > 0;
  uint64_t key = own ? hash_words(code, hash, reinterpret_cast<uint64_t*>(first),
                                  (this_traced().stack_high - first) / 8, in_python)
                     : hash_foreign(code, hash, sp, in_python);
  return keep(key, registers, own, python);
}

void note_code_change() { g_code_stale.store(true, std::memory_order_relaxed); }

void forget_thread_stack() {
  this_traced().tid = 0;
  forget_process();
  forget_python_busy();
  g_code_busy.store(false);  // a thread that was reading the mappings does not exist in this process
}

uint32_t traced_thread() {
  if (this_traced().tid == 0) this_traced().tid = static_cast<uint32_t>(os::gettid());
  return this_traced().tid;
}

const TraceStack* trace_stacks() { return g_stacks; }
const std::byte* trace_stack_bytes() { return g_bytes; }
uint64_t trace_stack_bytes_used() { return std::min(g_bytes_used.load(), kMaxStackBytes); }

}  // namespace farside::preload
