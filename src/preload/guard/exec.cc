#include "preload/guard/exec.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstring>

#include "abi/program_kind.h"
#include "base/log.h"
#include "preload/guard/process.h"
#include "preload/guard/syscall_table.h"

namespace farside::preload {
namespace {

constexpr char kVariable[] = "LD_PRELOAD=";
constexpr size_t kVariableBytes = sizeof kVariable - 1;

const char* g_library = "";  // the file of this library, as the dynamic linker knows it

// The value of LD_PRELOAD in an environment, or nullptr.
const char* preloads(const char* const* environment) {
  for (; environment && *environment; environment++) {
    if (strncmp(*environment, kVariable, kVariableBytes) == 0) return *environment + kVariableBytes;
  }
  return nullptr;
}

const char* text_of(ProgramKind kind) {
  switch (kind) {
    case ProgramKind::k32Bit:
      return "a 32-bit program";
    case ProgramKind::kStatic:
      return "statically linked";
    case ProgramKind::kSanitizer:
      return "built with a sanitizer";
    default:
      return nullptr;  // the kernel refuses it, or executes an interpreter
  }
}

ProgramKind kind_of_file(int fd, uint64_t bytes) {
  long file = bytes == 0 ? -1 : os::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (file < 0 && file > -4096) return ProgramKind::kNotElf;
  ProgramKind kind = kind_of_program(reinterpret_cast<void*>(file), bytes);
  os::munmap(reinterpret_cast<void*>(file), bytes);
  return kind;
}

FoundProgram look_at_program(const char* path, const char* const* environment) {
  struct stat info;
  int fd = path ? os::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  if (fd < 0) return {};
  FoundProgram found = {.exists = os::call(SYS_fstat, fd, &info) == 0 && S_ISREG(info.st_mode)};
  ProgramKind kind = found.exists ? kind_of_file(fd, static_cast<uint64_t>(info.st_size)) : ProgramKind::kNotElf;
  os::close(fd);
  if (!found.exists) return found;
  const char* libraries = preloads(environment);
  found.without_library = kind == ProgramKind::kSanitizer;
  if (!libraries || !*libraries) found.native = "started without LD_PRELOAD";
  else if (info.st_mode & (S_ISUID | S_ISGID)) found.native = "setuid or setgid";
  else found.native = text_of(kind);
  return found;
}

}  // namespace

NearStrings::NearStrings(const char* const* list, size_t spare) {
  if (!list) return;
  size_t count = 0, text = 0;
  for (; list[count]; count++) text += strlen(list[count]) + 1;
  bytes_ = (count + 1) * sizeof(char*) + text + spare;
  list_ = static_cast<char**>(os::map_near(bytes_));
  if (!list_) die("out of memory: cannot copy {} bytes of program arguments", bytes_);
  char* next = reinterpret_cast<char*>(list_ + count + 1);
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(list[i]) + 1;
    memcpy(next, list[i], length);
    list_[i] = next;
    next += length;
  }
  spare_ = next;
}

NearStrings::~NearStrings() {
  if (list_) os::unmap(list_, bytes_);
}

namespace {
size_t room_for_preloads(const char* const* environment) {
  const char* libraries = preloads(environment);
  return libraries ? kVariableBytes + strlen(libraries) + 1 + strlen(g_library) + 1 : 0;
}
}  // namespace

NearEnvironment::NearEnvironment(const char* const* list, bool with_library)
    : NearStrings(list, room_for_preloads(list)) {
  if (with_library) add_library();
  else remove_library();
}

// Replaces the value of LD_PRELOAD, which is there, and returns its end.
char* NearEnvironment::set(const char* libraries) {
  char** entry = list_;
  while (strncmp(*entry, kVariable, kVariableBytes) != 0) entry++;
  *entry = spare_;
  return stpcpy(stpcpy(spare_, kVariable), libraries);
}

void NearEnvironment::add_library() {
  const char* libraries = preloads(list_);
  if (!libraries || !*libraries || strstr(libraries, g_library)) return;
  char* end = stpcpy(set(libraries), ":");
  strcpy(end, g_library);
}

void NearEnvironment::remove_library() {
  const char* libraries = preloads(list_);
  const char* ours = libraries && *g_library ? strstr(libraries, g_library) : nullptr;
  if (!ours) return;
  const char* rest = ours + strlen(g_library);
  char* end = set("");
  end = static_cast<char*>(mempcpy(end, libraries, static_cast<size_t>(ours - libraries)));
  strcpy(end, *rest == ':' ? rest + 1 : rest);
}

NearPath::NearPath(const char* path) : path_(path) {
  if (!is_far(path)) return;
  size_t length = strnlen(path, sizeof copy_ - 1);
  memcpy(copy_, path, length);
  copy_[length] = 0;
  path_ = copy_;
}

void find_own_library() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&guarded_exec), &info) && info.dli_fname) g_library = info.dli_fname;
}

NearStart::NearStart(const char* path, const char* const* arguments, const char* const* environment)
    : path_(path),
      found_(look_at_program(path_.get(), environment)),
      arguments_(arguments),
      environment_(environment, !found_.without_library) {}

void NearStart::note() const {
  if (found_.native) note_native_program(path_.get(), found_.native);
}

long guarded_exec(const Call& call) {
  int shift = call.number == SYS_execveat ? 1 : 0;
  NearStart start(reinterpret_cast<const char*>(call.arg[shift]),
                  reinterpret_cast<const char* const*>(call.arg[shift + 1]),
                  reinterpret_cast<const char* const*>(call.arg[shift + 2]));
  start.note();
  note_exec();
  Call near = call;
  near.arg[shift] = reinterpret_cast<long>(start.path());
  near.arg[shift + 1] = reinterpret_cast<long>(start.arguments());
  near.arg[shift + 2] = reinterpret_cast<long>(start.environment());
  long r = issue(near);
  note_failed_exec();
  return r;
}

}  // namespace farside::preload
