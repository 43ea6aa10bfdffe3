#include "preload/trace/trace_python.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/bits.h"
#include "base/os.h"
#include "preload/trace/trace_reads.h"

namespace farside::preload {
namespace {

constexpr uint64_t kMaxCodes = 8192;
constexpr uint64_t kMaxFrames = 1 << 20;
constexpr uint64_t kMaxText = 8 * kMiB;
constexpr size_t kMaxName = 512;
constexpr size_t kMaxLines = 16 * kKiB;  // of a line table; later lines of the function are not known
constexpr size_t kFrameBytes = 72;

// Where the interpreter keeps what is read here: offsets within its structures.
struct Layout {
  unsigned version;       // minor
  uint16_t thread_frame;  // thread state: the current frame, before 3.13 by way of a structure on the C stack
  int16_t in_c_frame;     // within that structure; -1: there is none
  uint16_t code, previous, instruction;                  // frame
  uint16_t boundary;                                     // frame: a byte that says where a C function was called
  uint8_t boundary_value;                                // of a frame that is the last one of its C function, or
  bool boundary_is_frame;                                // of an entry without code that follows it
  uint16_t first_line, file, name, lines, instructions;  // code object
  uint16_t ascii_bytes, unicode_bytes;                   // head of a string
};
constexpr Layout kLayouts[] = {
    {11, 56, 8, 32, 48, 56, 68, 1, true, 72, 112, 128, 136, 184, 48, 72},
    {12, 56, 0, 0, 8, 56, 70, 3, false, 68, 112, 128, 136, 192, 40, 56},
    {13, 72, -1, 0, 8, 56, 70, 3, false, 68, 112, 128, 136, 200, 40, 56},
};
constexpr unsigned kStringLength = 16, kStringState = 32, kBytesLength = 16, kBytesHead = 32;
constexpr unsigned kFreeThreaded = 16;  // from 3.13 on, in the table of offsets at the start of _PyRuntime

struct Python {
  const Layout* layout = nullptr;
  void* (*this_thread)() = nullptr;
  pager::Pager* pager = nullptr;
  TracePythonCode* codes = nullptr;
  TracePythonFrame* frames = nullptr;
  std::byte* text = nullptr;
  std::atomic<uint64_t> code_count{0}, frame_count{0}, text_bytes{0};
  std::atomic<bool> busy{false};  // a thread adds a code object
};
Python g_python;

const Layout* find_layout() {
  auto* version = static_cast<const unsigned long*>(dlsym(RTLD_DEFAULT, "Py_Version"));  // 0x030b02f0 is 3.11.2
  auto* runtime = static_cast<const std::byte*>(dlsym(RTLD_DEFAULT, "_PyRuntime"));
  if (!version || !runtime || *version >> 24 != 3) return nullptr;
  unsigned minor = *version >> 16 & 0xff;
  auto found = std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](auto& l) { return l.version == minor; });
  if (found == std::end(kLayouts)) return nullptr;
  uint64_t free_threaded = 0;  // such a build has other structures
  if (minor >= 13) memcpy(&free_threaded, runtime + kFreeThreaded, sizeof free_threaded);
  return free_threaded ? nullptr : found;
}

template <typename T>
T field(const std::byte* from, size_t offset) {
  T value;
  memcpy(&value, from + offset, sizeof value);
  return value;
}

bool is_far(uint64_t address) { return g_python.pager->table().in_space(address); }

// What the thread itself executes is allocated. Only far memory may be absent.
uint64_t read_word(uint64_t address) {
  uint64_t value = 0;
  if (!is_far(address)) memcpy(&value, reinterpret_cast<void*>(address), sizeof value);
  else if (read_safely(address, &value, sizeof value) < sizeof value) return 0;
  return value;
}

uint64_t current_frame() {
  const Layout& layout = *g_python.layout;
  auto thread = reinterpret_cast<uint64_t>(g_python.this_thread());
  uint64_t at = thread ? read_word(thread + layout.thread_frame) : 0;
  return at && layout.in_c_frame >= 0 ? read_word(at + static_cast<uint64_t>(layout.in_c_frame)) : at;
}

// The head of a frame. Those of generators are often far, those of other functions in blocks of 16 KiB, which are near.
const std::byte* read_frame(uint64_t address, std::byte* buffer) {
  if (!is_far(address)) return reinterpret_cast<const std::byte*>(address);
  return read_safely(address, buffer, kFrameBytes) == kFrameBytes ? buffer : nullptr;
}

// ---- Code objects ----

// Reads memory that may be far: it is fetched first, as for a system call.
bool read_fetched(uint64_t address, void* to, size_t bytes) {
  auto* place = reinterpret_cast<const void*>(address);
  pager::Paging& paging = g_python.pager->paging();
  size_t pinned = is_far(address) ? paging.pin(place, bytes, false) : 0;
  size_t got = read_safely(address, to, bytes);
  if (pinned > 0) paging.unpin(place, pinned);
  return got == bytes;
}

// Appends bytes of the program to the text. Returns how many; 0: they cannot be read.
uint32_t append(uint64_t address, uint64_t bytes) {
  uint64_t used = g_python.text_bytes.load(std::memory_order_relaxed);
  if (bytes > kMaxText - used || !read_fetched(address, g_python.text + used, bytes)) return 0;
  g_python.text_bytes.store(used + bytes, std::memory_order_relaxed);
  return static_cast<uint32_t>(bytes);
}

// A string of ASCII characters as it is. Of others the low bytes are kept, which suffices for those of Latin 1.
uint32_t append_string(uint64_t object) {
  std::byte head[48];
  if (!object || !read_fetched(object, head, sizeof head)) return 0;
  uint32_t state = field<uint32_t>(head, kStringState);
  unsigned kind = state >> 2 & 7;
  bool ascii = state >> 6 & 1;
  uint64_t length = std::min<uint64_t>(field<uint64_t>(head, kStringLength), kMaxName);
  uint64_t begin = object + (ascii ? g_python.layout->ascii_bytes : g_python.layout->unicode_bytes);
  uint64_t used = g_python.text_bytes.load(std::memory_order_relaxed);
  uint32_t got = append(begin, length * kind);
  for (uint64_t i = 0; got > 0 && i < length; i++) g_python.text[used + i] = g_python.text[used + i * kind];
  if (got > 0) g_python.text_bytes.store(used + length, std::memory_order_relaxed);
  return got > 0 ? static_cast<uint32_t>(length) : 0;
}

uint32_t append_lines(uint64_t object) {
  std::byte head[kBytesHead];
  if (!object || !read_fetched(object, head, sizeof head)) return 0;
  return append(object + kBytesHead, std::min<uint64_t>(field<uint64_t>(head, kBytesLength), kMaxLines));
}

uint32_t find_code(uint64_t address, const std::byte* head) {
  auto lines = field<uint64_t>(head, g_python.layout->lines);
  auto first_line = field<uint32_t>(head, g_python.layout->first_line);
  for (uint64_t i = g_python.code_count.load(std::memory_order_acquire); i-- > 0;) {
    const TracePythonCode& c = g_python.codes[i];
    if (c.address == address && c.lines_address == lines && c.first_line == first_line) return static_cast<uint32_t>(i);
  }
  return TracePythonFrame::kUnknown;
}

uint32_t add_code(uint64_t address, const std::byte* head) {
  const Layout& layout = *g_python.layout;
  uint64_t number = g_python.code_count.load(std::memory_order_relaxed);
  if (number == kMaxCodes) return TracePythonFrame::kUnknown;
  TracePythonCode& code = g_python.codes[number];
  code.address = address;
  code.lines_address = field<uint64_t>(head, layout.lines);
  code.first_line = field<uint32_t>(head, layout.first_line);
  code.text = static_cast<uint32_t>(g_python.text_bytes.load(std::memory_order_relaxed));
  code.file_bytes = append_string(field<uint64_t>(head, layout.file));
  code.name_bytes = append_string(field<uint64_t>(head, layout.name));
  code.lines_bytes = append_lines(code.lines_address);
  g_python.code_count.store(number + 1, std::memory_order_release);
  return static_cast<uint32_t>(number);
}

// One thread at a time adds. False: another one has done so for long.
bool enter() {
  constexpr unsigned kTries = 1000;
  constexpr uint64_t kPauseNs = 100'000;
  for (unsigned i = 0; i < kTries; i++) {
    if (!g_python.busy.exchange(true, std::memory_order_acquire)) return true;
    os::nanosleep_ns(kPauseNs);
  }
  return false;
}

uint32_t code_at(uint64_t address) {
  std::byte head[144];
  if (!read_fetched(address, head, sizeof head)) return TracePythonFrame::kUnknown;
  uint32_t found = find_code(address, head);
  if (found != TracePythonFrame::kUnknown || !enter()) return found;
  found = find_code(address, head);
  if (found == TracePythonFrame::kUnknown) found = add_code(address, head);
  g_python.busy.store(false, std::memory_order_release);
  return found;
}

}  // namespace

Status start_python(pager::Pager* pager) {
  const Layout* layout = find_layout();
  auto this_thread = reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  if (!layout || !this_thread) return {};
  g_python.codes = static_cast<TracePythonCode*>(os::map_near(kMaxCodes * sizeof(TracePythonCode)));
  g_python.frames = static_cast<TracePythonFrame*>(os::map_near(kMaxFrames * sizeof(TracePythonFrame)));
  g_python.text = static_cast<std::byte*>(os::map_near(kMaxText));
  if (!g_python.codes || !g_python.frames || !g_python.text)
    return Status::error(ENOMEM, "no memory for the tables of a trace; raise the limit on virtual memory");
  g_python.pager = pager;
  g_python.this_thread = this_thread;
  g_python.layout = layout;
  return {};
}

uint64_t python_code_address() { return reinterpret_cast<uint64_t>(g_python.this_thread); }

void read_python_stack(PythonStack* stack) {
  stack->count = 0;
  if (!g_python.layout) return;
  const Layout& layout = *g_python.layout;
  std::byte buffer[kFrameBytes];
  uint64_t at = current_frame();
  for (unsigned steps = 0; at && steps < 2 * PythonStack::kMax && stack->count < PythonStack::kMax; steps++) {
    const std::byte* frame = read_frame(at, buffer);
    if (!frame) return;
    at = field<uint64_t>(frame, layout.previous);
    bool boundary = field<uint8_t>(frame, layout.boundary) == layout.boundary_value;
    if (boundary && !layout.boundary_is_frame) {
      if (stack->count > 0) stack->frames[stack->count - 1].is_entry = 1;
      continue;
    }
    auto code = field<uint64_t>(frame, layout.code);
    uint64_t begin = code + layout.instructions, instruction = field<uint64_t>(frame, layout.instruction);
    uint64_t offset = instruction < begin ? 0 : instruction - begin;  // before the first one: a call that begins
    stack->frames[stack->count++] = {code, static_cast<uint32_t>(offset), boundary};
  }
}

void keep_python_stack(const PythonStack& stack, TraceStack* to) {
  if (stack.count == 0) return;
  uint64_t first = g_python.frame_count.fetch_add(stack.count);
  if (first + stack.count > kMaxFrames) return;
  for (unsigned i = 0; i < stack.count; i++) {
    const PythonStack::Frame& frame = stack.frames[i];
    g_python.frames[first + i] = {code_at(frame.code), frame.instruction, frame.is_entry};
  }
  to->first_python_frame = static_cast<uint32_t>(first);
  to->python_frames = stack.count;
}

void forget_python_busy() { g_python.busy.store(false); }

const TracePythonCode* python_codes(uint64_t* count) {
  *count = g_python.code_count.load();
  return g_python.codes;
}

const TracePythonFrame* python_frames(uint64_t* count) {
  *count = std::min(g_python.frame_count.load(), kMaxFrames);
  return g_python.frames;
}

const std::byte* python_text(uint64_t* bytes) {
  *bytes = g_python.text_bytes.load();
  return g_python.text;
}

}  // namespace farside::preload
