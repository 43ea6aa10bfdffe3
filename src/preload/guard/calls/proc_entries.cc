#include "preload/guard/calls/proc_entries.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/os.h"
#include "base/service_thread.h"
#include "preload/guard/calls/syscall_table.h"
#include "preload/guard/process/process.h"
#include "preload/guard/process/program_start.h"

namespace farside::preload {
namespace {

struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  unsigned short bytes;
  unsigned char type;
  char name[];
};
static_assert(offsetof(DirectoryEntry, name) == 19);

enum class Directory { kOther, kDescriptors, kThreads };

// Directories of this process and of its threads.
Directory kind_of_directory(int fd) {
  char link[64], path[256], own[32];
  *fmt::format_to_n(link, sizeof link - 1, "/proc/self/fd/{}", fd).out = 0;
  long length = os::call(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length <= 0) return Directory::kOther;
  path[length] = 0;
  *fmt::format_to_n(own, sizeof own - 1, "/proc/{}/", os::getpid()).out = 0;
  if (strncmp(path, own, strlen(own)) != 0) return Directory::kOther;
  const char* last = strrchr(path, '/');
  if (strcmp(last, "/fd") == 0 || strcmp(last, "/fdinfo") == 0) return Directory::kDescriptors;
  return strcmp(last, "/task") == 0 ? Directory::kThreads : Directory::kOther;
}

// True for the name of a descriptor or thread of Farside's.
bool is_own(Directory directory, const char* name) {
  int number = 0;
  for (; *name >= '0' && *name <= '9' && number < 100'000'000; name++) number = number * 10 + (*name - '0');
  if (*name != 0) return false;
  return directory == Directory::kDescriptors ? owns_fd(number) : ServiceThread::is_one(number);
}

long without_own_entries(Directory directory, std::byte* entries, long bytes) {
  long kept = 0;
  for (long at = 0; at < bytes;) {
    auto* entry = reinterpret_cast<DirectoryEntry*>(entries + at);
    long size = entry->bytes;
    at += size;
    if (is_own(directory, entry->name)) continue;
    memmove(entries + kept, entry, static_cast<size_t>(size));
    kept += size;
  }
  return kept;
}

// Whether this is /proc/PID/task of this process. Other directories cost one comparison after the first.
bool is_thread_directory(dev_t device, ino_t inode) {
  static std::atomic<dev_t> proc_device{0};
  if (proc_device != 0 && device != proc_device) return false;
  struct stat own;
  if (os::call(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &own, 0) < 0) return false;
  proc_device = own.st_dev;
  return device == own.st_dev && inode == own.st_ino;
}

long read_own_link(char* to, size_t room) {
  std::string_view path = static_program_path();
  return static_cast<long>(path.copy(to, room));
}

std::atomic<bool> g_seeks{false};

bool ends_with_own_thread(std::string_view path) {
  size_t slash = path.rfind('/');
  if (slash == path.npos) return false;
  const char *begin = path.data() + slash + 1, *end = path.data() + path.size();
  int number = 0;
  auto parsed = std::from_chars(begin, end, number);
  return parsed.ec == std::errc() && parsed.ptr == end && os::call(SYS_tgkill, os::getpid(), number, 0) == 0;
}

}  // namespace

// An empty result would mean the end of the directory.
long getdents_call(const Call& call) {
  for (;;) {
    long bytes = table_call(call);
    Directory directory = bytes > 0 ? kind_of_directory(static_cast<int>(call.arg[0])) : Directory::kOther;
    if (directory == Directory::kOther) return bytes;
    long kept = without_own_entries(directory, reinterpret_cast<std::byte*>(call.arg[1]), bytes);
    if (kept > 0) return kept;
  }
}

long stat_call(const Call& call) {
  long r = table_call(call);
  if (r != 0) return r;
  auto* found = reinterpret_cast<struct stat*>(call.arg[call.number == SYS_newfstatat ? 2 : 1]);
  if (S_ISDIR(found->st_mode) && is_thread_directory(found->st_dev, found->st_ino))
    found->st_nlink -= ServiceThread::count();
  return 0;
}

long statx_call(const Call& call) {
  long r = table_call(call);
  if (r != 0) return r;
  auto* found = reinterpret_cast<struct statx*>(call.arg[4]);
  bool directory = (found->stx_mask & STATX_TYPE) && S_ISDIR(found->stx_mode);
  if (directory && is_thread_directory(makedev(found->stx_dev_major, found->stx_dev_minor), found->stx_ino))
    found->stx_nlink -= ServiceThread::count();
  return 0;
}

bool own_executable_call(const Call& call, long* result) {
  int argument = 1;
  bool reads_link = false;
  switch (call.number) {
#ifdef SYS_open
    case SYS_readlink:
      reads_link = true;
      [[fallthrough]];
    case SYS_open:
    case SYS_stat:
    case SYS_access:
      argument = 0;
      break;
#endif
    case SYS_readlinkat:
      reads_link = true;
      break;
    case SYS_newfstatat:
      if (call.arg[3] & AT_SYMLINK_NOFOLLOW) return false;
      break;
    case SYS_statx:
      if (call.arg[2] & AT_SYMLINK_NOFOLLOW) return false;
      break;
    case SYS_openat:
    case SYS_faccessat:
    case SYS_faccessat2:
      break;
    default:
      return false;
  }
  if (!is_own_executable(reinterpret_cast<const char*>(call.arg[argument]))) return false;
  Call changed = call;
  changed.arg[argument] = reinterpret_cast<long>(static_program_path());
  *result = reads_link ? read_own_link(reinterpret_cast<char*>(call.arg[argument + 1]),
                                       static_cast<size_t>(call.arg[argument + 2]))
                       : table_call(changed);
  return true;
}

// The path ends with /PID/NAME or /PID/task/TID/NAME, wherever /proc is mounted.
bool is_own_file(int fd, std::string_view name) {
  struct statfs system;
  if (os::call(SYS_fstatfs, fd, &system) != 0 || system.f_type != PROC_SUPER_MAGIC) return false;
  char link[64], target[256];
  *fmt::format_to_n(link, sizeof link - 1, "/proc/self/fd/{}", fd).out = 0;
  long length = os::call(SYS_readlinkat, AT_FDCWD, link, target, sizeof target);
  std::string_view path(target, length > 0 ? static_cast<size_t>(length) : 0);
  if (path.size() < name.size() || path.substr(path.size() - name.size()) != name) return false;
  return ends_with_own_thread(path.substr(0, path.size() - name.size()));
}

bool is_own_memory(int fd) { return is_own_file(fd, "/mem"); }

bool seeks_own_memory() { return g_seeks.load(std::memory_order_relaxed); }

long seek_call(const Call& call) {
  long r = issue(call);
  if (is_far(reinterpret_cast<void*>(r))) g_seeks = true;
  return r;
}

long own_memory_position(int fd) { return os::call(SYS_lseek, fd, 0, SEEK_CUR); }

}  // namespace farside::preload
