#include "preload/guard/exec.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstring>

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

// The first bytes of a file, which contain its ELF header and program headers.
struct FileHead {
  struct stat info;
  size_t bytes;
  alignas(Elf64_Ehdr) char text[4096];
};

bool read_head(const char* path, FileHead* head) {
  int fd = os::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = os::call(SYS_fstat, fd, &head->info) == 0 ? os::read(fd, head->text, sizeof head->text) : -1;
  os::close(fd);
  head->bytes = n > 0 ? static_cast<size_t>(n) : 0;
  return n > 0;
}

bool has_dynamic_linker(const FileHead& head, const Elf64_Ehdr& elf) {
  for (unsigned i = 0; i < elf.e_phnum; i++) {
    uint64_t at = elf.e_phoff + uint64_t{i} * elf.e_phentsize;
    Elf64_Phdr segment;
    if (at > head.bytes || head.bytes - at < sizeof segment) return true;  // not in sight
    memcpy(&segment, head.text + at, sizeof segment);
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

// Why a program runs natively; nullptr: it does not, or it cannot be told. Scripts are not followed.
const char* native_reason(const FileHead& head, const char* const* environment) {
  const char* libraries = preloads(environment);
  if (!libraries || !*libraries) return "started without LD_PRELOAD";
  if (head.info.st_mode & (S_ISUID | S_ISGID)) return "setuid or setgid";
  if (head.bytes < sizeof(Elf64_Ehdr) || memcmp(head.text, ELFMAG, SELFMAG) != 0) return nullptr;
  Elf64_Ehdr elf;
  memcpy(&elf, head.text, sizeof elf);
  if (elf.e_ident[EI_CLASS] == ELFCLASS32) return "a 32-bit program";
  return has_dynamic_linker(head, elf) ? nullptr : "statically linked";
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

// Bytes of the LD_PRELOAD that names the library in addition; 0: it stays as it is.
size_t extended_bytes(const char* const* environment) {
  const char* libraries = preloads(environment);
  if (!libraries || !*libraries || strstr(libraries, g_library)) return 0;
  return kVariableBytes + strlen(libraries) + 1 + strlen(g_library) + 1;
}

}  // namespace

NearEnvironment::NearEnvironment(const char* const* list) : NearStrings(list, extended_bytes(list)) {
  if (extended_bytes(list) == 0) return;
  char** entry = list_;
  while (strncmp(*entry, kVariable, kVariableBytes) != 0) entry++;
  char* end = stpcpy(spare_, *entry);
  *end++ = ':';
  strcpy(end, g_library);
  *entry = spare_;
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

void note_if_native(const char* path, const char* const* environment) {
  FileHead head;
  if (!read_head(path, &head)) return;
  if (const char* reason = native_reason(head, environment)) note_native_program(path, reason);
}

long guarded_exec(const Call& call) {
  int shift = call.number == SYS_execveat ? 1 : 0;
  NearPath path(reinterpret_cast<const char*>(call.arg[shift]));
  NearStrings arguments(reinterpret_cast<const char* const*>(call.arg[shift + 1]));
  NearEnvironment environment(reinterpret_cast<const char* const*>(call.arg[shift + 2]));
  FileHead head;
  if (shift == 0 && path.get() && read_head(path.get(), &head)) {
    const char* reason = native_reason(head, environment.get());
    if (reason) note_native_program(path.get(), reason);
    note_exec();
  }
  Call near = call;
  near.arg[shift] = reinterpret_cast<long>(path.get());
  near.arg[shift + 1] = reinterpret_cast<long>(arguments.get());
  near.arg[shift + 2] = reinterpret_cast<long>(environment.get());
  return issue(near);
}

}  // namespace farside::preload
