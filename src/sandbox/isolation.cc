#include "sandbox/isolation.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "sandbox/host_io.h"
#include "sandbox/protocol.h"

namespace farside::sandbox {
namespace {

constexpr rlim_t kStackBytes = 8 << 20;
constexpr rlim_t kOwnBytes = 32 << 20, kOwnAddresses = 256 << 20;  // of this program and its libraries

// As a file of the current folder.
void store_object(int number) {
  char name[16];
  snprintf(name, sizeof name, "%d.so", number);
  int from = kFirstObjectFd + number, to = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0555);
  off_t at = 0;
  struct stat info = {};
  if (to < 0 || fstat(from, &info) != 0) give_up("cannot store an object: ");
  while (at < info.st_size) {
    if (copy_file_range(from, &at, to, nullptr, static_cast<size_t>(info.st_size - at), 0) > 0) continue;
    char part[1 << 16];
    ssize_t n = pread(from, part, sizeof part, at);
    if (n <= 0 || write(to, part, static_cast<size_t>(n)) != n) give_up("cannot store an object: ");
    at += n;
  }
  close(to);
  close(from);
}

}  // namespace

void leave_files(int objects, uint64_t object_bytes) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) give_up("cannot make mounts private: ");
  char options[64];
  snprintf(options, sizeof options, "size=%llu,nr_inodes=32,mode=755",
           static_cast<unsigned long long>(object_bytes + (1 << 20)));
  if (mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, options) != 0 || chdir("/proc") != 0)
    give_up("cannot mount an empty file system: ");
  for (int i = 0; i < objects; i++) store_object(i);
  if (syscall(SYS_pivot_root, ".", ".") == 0) {
    if (umount2(".", MNT_DETACH) != 0) give_up("cannot leave the files of the server: ");
  } else if (mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 || chroot(".") != 0) {
    give_up("cannot leave the files of the server: ");
  }
  if (chdir("/") != 0 || mount(nullptr, "/", nullptr, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) != 0)
    give_up("cannot make the objects read-only: ");
}

void limit_resources(uint64_t memory, uint64_t mapped) {
  auto limit = [](__rlimit_resource what, rlim_t value) {
    rlimit both = {value, value};
    setrlimit(what, &both);
  };
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NPROC, 0);
  limit(RLIMIT_MEMLOCK, 0);
  limit(RLIMIT_MSGQUEUE, 0);
  limit(RLIMIT_STACK, kStackBytes);
  limit(RLIMIT_DATA, kOwnBytes + memory);
  rlimit addresses = {kOwnAddresses + 2 * memory + mapped, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &addresses);
}

void leave_user(unsigned user) {
  for (int capability = 0; prctl(PR_CAPBSET_DROP, capability) == 0; capability++) {}
  prctl(PR_SET_SECUREBITS,
        SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED);
  if (syscall(SYS_setresgid, user, user, user) != 0 || syscall(SYS_setresuid, user, user, user) != 0)
    give_up("cannot change the user: ");
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) give_up("cannot give up capabilities: ");
  prctl(PR_SET_DUMPABLE, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up("cannot set no_new_privs: ");
}

}  // namespace farside::sandbox
