#include "libfarside/scope_check.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/sync.h"

namespace farside::scope_check {
namespace {

constexpr uint64_t kPage = 4096, kSpaceBytes = uint64_t{256} << 30;
constexpr unsigned kAddressShift = FARSIDE_OWNER_ADDRESS_SHIFT_;

// The state of a page. For an object of several pages, the record of its first page has everything except `back`.
struct Page {
  std::atomic<uint32_t> readers, writers;  // scopes in which the object was dereferenced
  std::atomic<uint32_t> bytes;             // of the object
  std::atomic<uint16_t> back;              // distance in pages to the object's first page
  std::atomic<bool> destroyed;
};
static_assert(sizeof(Page) == 16);

Mutex g_mutex;  // guards changes of the pages, too; the signal handler reads everything without it
std::byte* g_space = nullptr;
Page* g_pages = nullptr;
uint64_t g_used GUARDED_BY(g_mutex) = 0;  // pages
struct sigaction g_before;

[[noreturn]] __attribute__((format(printf, 1, 2))) void stop(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("farside: ", stderr);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

uint64_t pages_of(uint64_t bytes) { return (bytes + kPage - 1) / kPage; }
uint64_t page_of(uint64_t address) { return (address - reinterpret_cast<uint64_t>(g_space)) / kPage; }
uint64_t first_page(uint64_t page) { return page - g_pages[page].back.load(std::memory_order_relaxed); }

// ---- The SIGSEGV handler: async-signal-safe except for the backtrace, which is printed last ----

void print(const char* text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

void print_number(uint64_t number) {
  char digits[24];
  size_t at = sizeof digits;
  digits[--at] = 0;
  do digits[--at] = static_cast<char>('0' + number % 10);
  while (number /= 10);
  print(digits + at);
}

// Not analyzed: the thread that it interrupts may hold the lock.
void on_access(int signal, siginfo_t* info, void*) NO_THREAD_SAFETY_ANALYSIS {
  auto address = reinterpret_cast<uint64_t>(info->si_addr);
  sigaction(signal, &g_before, nullptr);  // the access is repeated after the return, with the program's own action
  if (!g_pages || page_of(address) >= g_used) return;
  const Page& object = g_pages[first_page(page_of(address))];
  print("farside: an object of ");
  print_number(object.bytes.load(std::memory_order_relaxed));
  if (object.destroyed.load(std::memory_order_relaxed)) {
    print(" bytes was used after it was destroyed\n");
  } else if (object.readers.load(std::memory_order_relaxed) > 0) {
    print(" bytes was written through a pointer for reading; use deref_mut\n");
  } else {
    print(
        " bytes was used after the scope of its pointer had ended, or from beyond another object's end; keep the scope "
        "open for as long as the pointer is used\n");
  }
  print("It was here (addr2line -e PROGRAM OFFSET names a line):\n");
  void* frames[16];
  backtrace_symbols_fd(frames, backtrace(frames, 16), STDERR_FILENO);
}

void* map(uint64_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    stop("FARSIDE_CHECK_SCOPES: cannot reserve addresses (%s); raise 'ulimit -v'", strerror(errno));
  return memory;
}

bool start() {
  const char* wanted = getenv("FARSIDE_CHECK_SCOPES");
  if (!wanted || strcmp(wanted, "1") != 0) return false;
  g_pages = static_cast<Page*>(map(kSpaceBytes / kPage * sizeof(Page), PROT_READ | PROT_WRITE));
  g_space = static_cast<std::byte*>(map(kSpaceBytes, PROT_NONE));
  void* frame;
  backtrace(&frame, 1);  // loads libgcc now, because the signal handler must not
  struct sigaction action = {};
  action.sa_sigaction = on_access;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &g_before);
  return true;
}

// ---- Making objects accessible, and inaccessible again ----

void protect(uint64_t page) REQUIRES(g_mutex) {
  const Page& p = g_pages[page];
  int protection = p.writers > 0 ? PROT_READ | PROT_WRITE : (p.readers > 0 ? PROT_READ : PROT_NONE);
  if (p.destroyed) protection = PROT_NONE;
  if (mprotect(g_space + page * kPage, pages_of(p.bytes) * kPage, protection) == 0) return;
  stop("FARSIDE_CHECK_SCOPES: too many objects are open at once (%s); raise vm.max_map_count", strerror(errno));
}

void open(uint64_t page, bool write) REQUIRES(g_mutex) {
  auto* scopes = static_cast<CheckedScopes*>(farside_scopes_here);
  if (!scopes || scopes->depth == 0) stop("a far object was used without an open scope; make a deref_scope first");
  if (!scopes->opened.insert(page << 1 | (write ? 1 : 0)).second) return;
  scopes->held = 1;
  if ((write ? g_pages[page].writers : g_pages[page].readers)++ == 0) protect(page);
}

}  // namespace

bool enabled() {
  static const bool on = start();
  return on;
}

// Places the object at the end of its last page, as far as its alignment permits, so that accesses past its end fault.
void* make(uint64_t* owner, const farside_object_type& type) {
  LockGuard guard(g_mutex);
  uint64_t pages = pages_of(type.bytes), page = g_used;
  if (pages > UINT16_MAX) stop("FARSIDE_CHECK_SCOPES supports objects of up to 256 MiB");
  if ((g_used + pages) * kPage > kSpaceBytes)
    stop("FARSIDE_CHECK_SCOPES: all addresses are used up; make fewer objects");
  g_used += pages;
  g_pages[page].bytes = static_cast<uint32_t>(type.bytes);
  for (uint64_t i = 1; i < pages; i++) g_pages[page + i].back = static_cast<uint16_t>(i);
  open(page, true);
  uint64_t alignment = type.alignment < 1 ? 1 : type.alignment;
  uint64_t offset = (pages * kPage - type.bytes) / alignment * alignment;
  auto address = reinterpret_cast<uint64_t>(g_space) + page * kPage + offset;
  *owner = address << kAddressShift;
  return reinterpret_cast<void*>(address);
}

void destroy(uint64_t* owner) {
  LockGuard guard(g_mutex);
  uint64_t page = page_of(*owner >> kAddressShift);
  Page& p = g_pages[page];
  if (p.destroyed.exchange(true))
    stop("an object of %u bytes was destroyed twice, or its pointer's bytes were copied", p.bytes.load());
  protect(page);
  madvise(g_space + page * kPage, pages_of(p.bytes) * kPage, MADV_DONTNEED);
  *owner = 0;
}

void* deref(const uint64_t* owner, bool write) {
  if (*owner == 0) return nullptr;
  LockGuard guard(g_mutex);
  uint64_t address = *owner >> kAddressShift, page = page_of(address);
  if (g_pages[page].destroyed)
    stop("a pointer refers to an object of %u bytes that was destroyed; the pointer's bytes were copied",
         g_pages[page].bytes.load());
  open(page, write);
  return reinterpret_cast<void*>(address);
}

void release(CheckedScopes& scopes) {
  LockGuard guard(g_mutex);
  scopes.held = 0;
  for (uint64_t key : scopes.opened) {
    Page& p = g_pages[key >> 1];
    if (--(key & 1 ? p.writers : p.readers) == 0) protect(key >> 1);
  }
  scopes.opened.clear();
}

}  // namespace farside::scope_check
