#include "preload/guard/process/program_start.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "abi/program_kind.h"
#include "abi/run_block.h"
#include "abi/run_variables.h"
#include "abi/static_tls.h"
#include "base/log.h"
#include "base/os.h"
#include "preload/guard/process/process.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"

namespace farside::preload {

bool sets(const char* entry, const char* name) {
  size_t length = strlen(name);
  return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

namespace {

constexpr char kStaticLoader[] = "static_loader";  // beside the library
constexpr char kPreloadVariable[] = "LD_PRELOAD";

const char* g_library = "";  // the file of this library, as the dynamic linker knows it
char g_static_loader[4096];  // the program that executes static programs; "" if they run natively

// The value of a variable in an environment, or nullptr.
const char* value_of(const char* const* environment, const char* name) {
  for (; environment && *environment; environment++) {
    if (sets(*environment, name)) return *environment + strlen(name) + 1;
  }
  return nullptr;
}

const char* preloads(const char* const* environment) { return value_of(environment, kPreloadVariable); }

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
  if (os::is_error(file)) return ProgramKind::kNotElf;
  ProgramKind kind = kind_of_program(reinterpret_cast<void*>(file), bytes);
  os::munmap(reinterpret_cast<void*>(file), bytes);
  return kind;
}

bool is_executable(const char* path) {
  long r = os::call(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS);
  if (r == -ENOSYS) r = os::call(SYS_faccessat, AT_FDCWD, path, X_OK);
  return r == 0;
}

// Whether static_loader can be this static program. It opens the file after the exec, when descriptors may be closed.
// Valgrind's tools are static programs with an address space of their own.
bool can_be_loaded(const char* path, const char* const* environment) {
  bool names_descriptor = strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0;
  bool is_valgrind = value_of(environment, "VALGRIND_LAUNCHER") != nullptr;
  return *g_static_loader && serves_static_programs() && !names_descriptor && !is_valgrind && is_executable(path) &&
         is_executable(g_static_loader);
}

FoundProgram look_at_program(const char* path, const char* const* environment) {
  struct stat info;
  int fd = path ? os::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  if (fd < 0) return {};
  FoundProgram found = {.exists = os::call(SYS_fstat, fd, &info) == 0 && S_ISREG(info.st_mode)};
  bool has_capabilities = os::call(SYS_fgetxattr, fd, "security.capability", nullptr, 0) > 0;
  ProgramKind kind = found.exists ? kind_of_file(fd, static_cast<uint64_t>(info.st_size)) : ProgramKind::kNotElf;
  os::close(fd);
  if (!found.exists) return found;
  const char* libraries = preloads(environment);
  found.privileged = (info.st_mode & (S_ISUID | S_ISGID)) != 0 || has_capabilities;
  found.without_library = kind == ProgramKind::kSanitizer;
  if (!libraries || !*libraries) found.native = "started without LD_PRELOAD";
  else if (info.st_mode & (S_ISUID | S_ISGID)) found.native = "setuid or setgid";
  else if (has_capabilities) found.native = "has file capabilities";
  else if (kind == ProgramKind::kStatic && can_be_loaded(path, environment)) found.by_loader = true;
  else found.native = text_of(kind);
  return found;
}

}  // namespace

NearStrings::NearStrings(const char* const* list, size_t spare) {
  if (!list) return;
  size_t count = 0, text = 0;
  for (; list[count]; count++) text += strlen(list[count]) + 1;
  constexpr size_t kAppended = EnvironmentChanges::kAppended;
  bytes_ = (count + kAppended + 1) * sizeof(char*) + text + spare;
  list_ = static_cast<char**>(os::map_near(bytes_));
  if (!list_) die("out of memory: cannot copy {} bytes of program arguments", bytes_);
  char* next = reinterpret_cast<char*>(list_ + count + kAppended + 1);
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

size_t room_for(const char* name, size_t value) { return strlen(name) + 1 + value + 1; }

bool is_audited(const char* const* environment) {
  const char* libraries = value_of(environment, kAuditVariable);
  return libraries && *libraries;
}

}  // namespace

size_t EnvironmentChanges::room(const char* const* environment, const char* static_program) {
  const char* libraries = preloads(environment);
  size_t room = libraries ? room_for(kPreloadVariable, strlen(libraries) + 1 + strlen(g_library)) : 0;
  if (is_audited(environment))
    room += room_for(kTunablesVariable, room_for_tunables(value_of(environment, kTunablesVariable)));
  return static_program ? room + room_for(kStaticVariable, strlen(static_program)) : room;
}

void EnvironmentChanges::make(bool with_library, const char* static_program) {
  if (static_program) spare_ = stpcpy(set(kStaticVariable), static_program) + 1;
  if (with_library) add_library();
  else remove_library();
  if (with_library && is_audited(list_)) set_static_tls();
}

NearEnvironment::NearEnvironment(const char* const* list, bool with_library, const char* static_program)
    : NearStrings(list, EnvironmentChanges::room(list, static_program)) {
  if (list) EnvironmentChanges(list_, spare_).make(with_library, static_program);
}

// Sets a variable, or adds it. Returns the place for its value in the spare memory; the old value stays where it is.
char* EnvironmentChanges::set(const char* name) {
  char** entry = list_;
  while (*entry && !sets(*entry, name)) entry++;
  *entry = spare_;
  return stpcpy(stpcpy(spare_, name), "=");
}

void EnvironmentChanges::set_static_tls() {
  const char* tunables = value_of(list_, kTunablesVariable);
  spare_ = write_tunables(set(kTunablesVariable), tunables) + 1;
}

void EnvironmentChanges::add_library() {
  const char* libraries = preloads(list_);
  if (!libraries || !*libraries || strstr(libraries, g_library)) return;
  spare_ = stpcpy(stpcpy(stpcpy(set(kPreloadVariable), libraries), ":"), g_library) + 1;
}

void EnvironmentChanges::remove_library() {
  const char* libraries = preloads(list_);
  const char* ours = libraries && *g_library ? strstr(libraries, g_library) : nullptr;
  if (!ours) return;
  const char* rest = ours + strlen(g_library);
  auto* end = static_cast<char*>(mempcpy(set(kPreloadVariable), libraries, static_cast<size_t>(ours - libraries)));
  spare_ = stpcpy(end, *rest == ':' ? rest + 1 : rest) + 1;
}

bool is_own_executable(const char* path) { return path && is_static_program() && strcmp(path, "/proc/self/exe") == 0; }

NearPath::NearPath(const char* path) : path_(path) {
  if (is_own_executable(path)) path_ = static_program_path();
  if (!is_far(path)) return;
  size_t length = strnlen(path, sizeof copy_ - 1);
  memcpy(copy_, path, length);
  copy_[length] = 0;
  path_ = copy_;
}

void find_own_library() {
  Dl_info info = {};
  if (!dladdr(reinterpret_cast<const void*>(&find_own_library), &info) || !info.dli_fname) return;
  g_library = info.dli_fname;
  const char* slash = strrchr(g_library, '/');
  size_t folder = slash ? static_cast<size_t>(slash + 1 - g_library) : 0;
  if (!can_switch_thread_pointers() || folder + sizeof kStaticLoader > sizeof g_static_loader) return;
  strcpy(static_cast<char*>(mempcpy(g_static_loader, g_library, folder)), kStaticLoader);
}

NearStart::NearStart(const char* path, const char* const* arguments, const char* const* environment)
    : path_(path),
      found_(look_at_program(path_.get(), environment)),
      arguments_(arguments),
      environment_(environment, !found_.without_library, found_.by_loader ? path_.get() : nullptr) {}

const char* NearStart::path() const { return found_.by_loader ? g_static_loader : path_.get(); }

bool is_of_the_run(const char* const* environment) {
  const char* libraries = preloads(environment);
  return libraries && strstr(libraries, g_library) && run_fd_in(environment) >= 0 && run_fd_in(environment) == run_fd();
}

bool NearStart::gets_run_fds() const { return !found_.privileged && is_of_the_run(environment()); }

void NearStart::note() const {
  if (found_.native) note_native_program(path_.get(), found_.native);
}

}  // namespace farside::preload
