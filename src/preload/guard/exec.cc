#include "preload/guard/exec.h"

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
#include "abi/static_tls.h"
#include "base/log.h"
#include "preload/guard/process.h"
#include "preload/guard/syscall_table.h"
#include "preload/guard/thread_pointer.h"

namespace farside::preload {
namespace {

constexpr char kStaticLoader[] = "static_loader";  // beside the library
constexpr char kVariable[] = "LD_PRELOAD=";
constexpr size_t kVariableBytes = sizeof kVariable - 1;

const char* g_library = "";  // the file of this library, as the dynamic linker knows it
char g_static_loader[4096];  // the program that executes static programs; "" if they run natively

// The value of a variable in an environment, or nullptr. `name` ends with '='.
const char* value_of(const char* const* environment, const char* name) {
  size_t length = strlen(name);
  for (; environment && *environment; environment++) {
    if (strncmp(*environment, name, length) == 0) return *environment + length;
  }
  return nullptr;
}

const char* preloads(const char* const* environment) { return value_of(environment, kVariable); }

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
  bool is_valgrind = value_of(environment, "VALGRIND_LAUNCHER=") != nullptr;
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
  constexpr size_t kAppended = 2;
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

void NearStrings::append(const char* name, const char* value) {
  char** entry = list_;
  while (*entry) entry++;
  *entry = spare_;
  spare_ = stpcpy(stpcpy(stpcpy(spare_, name), "="), value) + 1;
}

NearStrings::~NearStrings() {
  if (list_) os::unmap(list_, bytes_);
}

namespace {
size_t room_for_preloads(const char* const* environment) {
  const char* libraries = preloads(environment);
  return libraries ? kVariableBytes + strlen(libraries) + 1 + strlen(g_library) + 1 : 0;
}

const char* tunables_of(const char* const* environment) { return value_of(environment, "GLIBC_TUNABLES="); }

bool is_audited(const char* const* environment) {
  const char* libraries = value_of(environment, "LD_AUDIT=");
  return libraries && *libraries;
}

size_t room_for_tunables(const char* const* environment) {
  if (!is_audited(environment)) return 0;
  const char* tunables = tunables_of(environment);
  return sizeof kTunablesVariable + sizeof kStaticTlsTunable + (tunables ? strlen(tunables) + 1 : 0);
}
}  // namespace

NearEnvironment::NearEnvironment(const char* const* list, bool with_library, const char* static_program)
    : NearStrings(list, room_for_preloads(list) + room_for_tunables(list) +
                            (static_program ? sizeof kStaticVariable + 1 + strlen(static_program) : 0)) {
  if (static_program) append(kStaticVariable, static_program);
  if (with_library) add_library();
  else remove_library();
  if (with_library && is_audited(list_)) set_static_tls();
}

// Replaces the value of a variable that is there; `name` ends with '='. Returns the end of the new value.
char* NearEnvironment::set(const char* name, const char* value) {
  char** entry = list_;
  while (strncmp(*entry, name, strlen(name)) != 0) entry++;
  *entry = spare_;
  return stpcpy(stpcpy(spare_, name), value);
}

void NearEnvironment::set_static_tls() {
  const char* tunables = tunables_of(list_);
  if (!tunables) return append(kTunablesVariable, kStaticTlsTunable);
  if (strstr(tunables, kStaticTlsTunable)) return;
  char* end = stpcpy(set("GLIBC_TUNABLES=", tunables), *tunables ? ":" : "");
  spare_ = stpcpy(end, kStaticTlsTunable) + 1;
}

void NearEnvironment::add_library() {
  const char* libraries = preloads(list_);
  if (!libraries || !*libraries || strstr(libraries, g_library)) return;
  char* end = stpcpy(set(kVariable, libraries), ":");
  spare_ = stpcpy(end, g_library) + 1;
}

void NearEnvironment::remove_library() {
  const char* libraries = preloads(list_);
  const char* ours = libraries && *g_library ? strstr(libraries, g_library) : nullptr;
  if (!ours) return;
  const char* rest = ours + strlen(g_library);
  char* end = set(kVariable, "");
  end = static_cast<char*>(mempcpy(end, libraries, static_cast<size_t>(ours - libraries)));
  strcpy(end, *rest == ':' ? rest + 1 : rest);
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
  if (!dladdr(reinterpret_cast<const void*>(&guarded_exec), &info) || !info.dli_fname) return;
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

namespace {

// The environment loads the library, and names the descriptor that has the options of this run.
bool is_of_the_run(const char* const* environment) {
  const char* libraries = preloads(environment);
  return libraries && strstr(libraries, g_library) && run_fd_in(environment) >= 0 && run_fd_in(environment) == run_fd();
}

}  // namespace

bool NearStart::gets_run_fds() const { return !found_.privileged && is_of_the_run(environment()); }

void NearStart::note() const {
  if (found_.native) note_native_program(path_.get(), found_.native);
}

namespace {

bool names_file_by_path(const Call& execveat) {
  auto* path = reinterpret_cast<const char*>(execveat.arg[1]);
  bool from_here = static_cast<int>(execveat.arg[0]) == AT_FDCWD || (path && *path == '/');
  return from_here && execveat.arg[4] == 0;
}

// Returns if the call fails.
long issue_exec(const Call& near, bool with_run_fds) {
  note_exec();
  pass_run_fds(with_run_fds);
  long r = issue(near);
  pass_run_fds(true);
  note_failed_exec();
  return r;
}

// execveat with a directory or a file of its own: what is executed is not looked at.
long exec_at(const Call& call) {
  NearPath path(reinterpret_cast<const char*>(call.arg[1]));
  NearStrings arguments(reinterpret_cast<const char* const*>(call.arg[2]));
  NearEnvironment environment(reinterpret_cast<const char* const*>(call.arg[3]), true, nullptr);
  Call near = call;
  near.arg[1] = reinterpret_cast<long>(path.get());
  near.arg[2] = reinterpret_cast<long>(arguments.get());
  near.arg[3] = reinterpret_cast<long>(environment.get());
  return issue_exec(near, is_of_the_run(environment.get()));
}

}  // namespace

long guarded_exec(const Call& call) {
  int shift = call.number == SYS_execveat ? 1 : 0;
  if (shift && !names_file_by_path(call)) return exec_at(call);
  NearStart start(reinterpret_cast<const char*>(call.arg[shift]),
                  reinterpret_cast<const char* const*>(call.arg[shift + 1]),
                  reinterpret_cast<const char* const*>(call.arg[shift + 2]));
  start.note();
  Call near = call;
  near.arg[shift] = reinterpret_cast<long>(start.path());
  near.arg[shift + 1] = reinterpret_cast<long>(start.arguments());
  near.arg[shift + 2] = reinterpret_cast<long>(start.environment());
  return issue_exec(near, start.gets_run_fds());
}

}  // namespace farside::preload
