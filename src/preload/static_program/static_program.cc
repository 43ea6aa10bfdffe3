#include "preload/static_program/static_program.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "abi/run_variables.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "preload/guard/process/process.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"
#include "preload/static_program/elf_image.h"

namespace farside::preload {
namespace {

constexpr int kCannotBeRun = 126;

[[noreturn]] void stop_with(const Status& status) {
  log_failure(status, kProgramNotRunnable);
  os::exit_group(kCannotBeRun);
}

// The words at the top of a new program's stack: argc, argv, envp, auxiliary vector (System V ABI, 3.4.1).
class InitialStack {
 public:
  explicit InitialStack(uint64_t* words) : next_(words) {}
  void add(uint64_t word) { *next_++ = word; }
  void add_list(char** strings) {
    for (; *strings; strings++) add(reinterpret_cast<uint64_t>(*strings));
    add(0);
  }

 private:
  uint64_t* next_;
};

size_t length_of(char** strings) {
  size_t length = 0;
  while (strings[length]) length++;
  return length;
}

void remove_variable(char** environment, const char* name) {
  size_t length = strlen(name);
  char** kept = environment;
  for (; *environment; environment++) {
    if (strncmp(*environment, name, length) != 0 || (*environment)[length] != '=') *kept++ = *environment;
  }
  *kept = nullptr;
}

// The kernel's auxiliary vector of this process: behind its environment, on the stack.
constexpr size_t kMaxEntries = 64;
size_t read_auxiliary_vector(Elf64_auxv_t* entries) {
  int fd = os::open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
  long bytes = fd < 0 ? -1 : os::call(SYS_read, fd, entries, kMaxEntries * sizeof *entries);
  if (fd >= 0) os::close(fd);
  if (bytes <= 0) stop_with(Status::error(ENOENT, "/proc/self/auxv cannot be read; a static program needs /proc"));
  return static_cast<size_t>(bytes) / sizeof *entries;
}

uint64_t auxiliary_value(const Elf64_auxv_t& entry, const ElfImage& image, const char* path) {
  switch (entry.a_type) {
    case AT_PHDR:
      return image.headers;
    case AT_PHNUM:
      return image.header_count;
    case AT_ENTRY:
      return image.entry;
    case AT_BASE:
      return 0;  // of the dynamic linker
    case AT_EXECFN:
      return reinterpret_cast<uint64_t>(path);
    default:
      return entry.a_un.a_val;
  }
}

// libc of this program has registered its area of restartable sequences, and the static program has none: its area may
// be far memory, which the kernel accesses at any time (thread_pointer.h).
void unregister_restartable_sequences() {
  constexpr unsigned kUnregister = 1, kSignature = 0x53053053;
  auto* offset = static_cast<const ptrdiff_t*>(dlsym(RTLD_DEFAULT, "__rseq_offset"));
  auto* size = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__rseq_size"));
  if (!offset || !size || *size == 0) return;
  constexpr unsigned kOriginalBytes = 32;  // what libc registers, even if it says that it uses less
  auto* area = static_cast<char*>(__builtin_thread_pointer()) + *offset;
  os::call(SYS_rseq, area, kOriginalBytes, kUnregister, kSignature);
}

int open_program(const char* path) {
  int fd = os::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) stop_with(Status::error(-fd, "cannot read {}: {}", path, strerror(-fd)));
  return fd;
}

void check_that_it_can_be_served(const char* path) {
  if (in_handler_mode())
    stop_with(Status::error(ENOTSUP, "{} is statically linked; such programs run in signal mode only", path));
  if (!can_switch_thread_pointers())
    stop_with(
        Status::error(ENOTSUP,
                      "{} is statically linked, which needs glibc and a processor and kernel with FSGSBASE; use a "
                      "dynamically linked build",
                      path));
}

// The kernel keeps the path that it was given at the top of the stack.
void make_stack_executable() {
  auto* top = reinterpret_cast<void*>(align_down(getauxval(AT_EXECFN), kPageSize));
  os::mprotect(top, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN);
}

char g_path[PATH_MAX];  // of the program, without symbolic links

void name_process(const char* path) {
  const char* slash = strrchr(path, '/');
  os::call(SYS_prctl, PR_SET_NAME, slash ? slash + 1 : path, 0, 0, 0);
}

// Enters the program as the kernel does: at its entry point, with this stack pointer, all other registers zero.
[[noreturn]] void enter(const void* stack_pointer, uint64_t entry) {
  begin_static_program();
  asm volatile(
      R"(
      movq %0, %%rsp
      pushq %1
      xorl %%eax, %%eax
      wrfsbase %%rax
      xorl %%ebx, %%ebx
      xorl %%ecx, %%ecx
      xorl %%edx, %%edx
      xorl %%esi, %%esi
      xorl %%edi, %%edi
      xorl %%ebp, %%ebp
      xorl %%r8d, %%r8d
      xorl %%r9d, %%r9d
      xorl %%r10d, %%r10d
      xorl %%r11d, %%r11d
      xorl %%r12d, %%r12d
      xorl %%r13d, %%r13d
      xorl %%r14d, %%r14d
      xorl %%r15d, %%r15d
      ret
      )"
      :
      : "r"(stack_pointer), "r"(entry)
      : "memory");
  __builtin_unreachable();
}

}  // namespace

const char* static_program_path() { return g_path; }

}  // namespace farside::preload

using namespace farside;
using namespace farside::preload;

void farside_start_static_program(const char* path, char** arguments, char** environment) {
  if (!guard_pager()) {  // preloaded without a launcher
    remove_variable(environment, kStaticVariable);
    long r = os::call(SYS_execve, path, arguments, environment);
    stop_with(Status::error(static_cast<int>(-r), "cannot run {}: {}", path, strerror(static_cast<int>(-r))));
  }
  check_that_it_can_be_served(path);
  int fd = open_program(path);
  Result<ElfImage> image = map_executable(path, fd);
  os::close(fd);
  if (!image.ok()) stop_with(image.status());
  if (image->executes_stack) make_stack_executable();
  if (!realpath(path, g_path)) strncpy(g_path, path, sizeof g_path - 1);
  name_process(path);
  Elf64_auxv_t auxiliary[kMaxEntries];
  size_t entries = read_auxiliary_vector(auxiliary);
  remove_variable(environment, kStaticVariable);
  unregister_restartable_sequences();
  size_t count = length_of(arguments);
  size_t words = 1 + (count + 1) + (length_of(environment) + 1) + 2 * entries;
  // Aligned to 16 bytes, on this stack, which grows from here as the program's.
  auto* stack = static_cast<uint64_t*>(__builtin_alloca_with_align(words * sizeof(uint64_t), 128));
  InitialStack initial(stack);
  initial.add(count);
  initial.add_list(arguments);
  initial.add_list(environment);
  for (size_t i = 0; i < entries; i++) {
    initial.add(auxiliary[i].a_type);
    initial.add(auxiliary_value(auxiliary[i], *image, path));
  }
  enter(stack, image->entry);
}
