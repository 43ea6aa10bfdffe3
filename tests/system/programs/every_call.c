// Every system call of the guard's list (system_calls.inc), with each pointer argument in cold far memory: its result
// and what it writes. An argument begins 8 bytes before the end of a page, so that structures are on two pages. Calls
// that are left out have a reason in the table below.
#include <linux/capability.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "far.h"

// The words of the list: whether an argument is a string, points to memory, or is a number.
enum kind { NUMBER, TEXT, BLOCK };
struct argument {
  enum kind kind;
  int count;  // 1-based argument that counts what the memory holds
};
#define no() \
  { NUMBER, 0 }
#define str() \
  { TEXT, 0 }
#define in(...) \
  { BLOCK, 0 }
#define out(...) \
  { BLOCK, 0 }
#define inout(...) \
  { BLOCK, 0 }
#define nested(...) \
  { BLOCK, 0 }
#define any() \
  { BLOCK, 0 }
#define FIRST(a, ...) a
#define in_n(...) \
  { BLOCK, FIRST(__VA_ARGS__, 0) }
#define out_n(...) \
  { BLOCK, FIRST(__VA_ARGS__, 0) }
#define inout_n(...) \
  { BLOCK, FIRST(__VA_ARGS__, 0) }
#define got_n(...) \
  { BLOCK, FIRST(__VA_ARGS__, 0) }
#define in_bits(n) \
  { BLOCK, n }
#define out_bits(n) \
  { BLOCK, n }
#define inout_bits(n) \
  { BLOCK, n }
#define in_message(n) \
  { BLOCK, n }
#define out_message(n) \
  { BLOCK, n }
#define out_per_page(n) \
  { BLOCK, 0 }
#define sized_by(n) \
  { BLOCK, 0 }
#define pointers(...) __VA_ARGS__
#define pages(...) __VA_ARGS__

struct call {
  long number;
  const char* name;
  struct argument argument[6];
};
static const struct call calls[] = {
#define CALL(number, name, ...) {number, #name, {__VA_ARGS__}},
#include "../../../src/preload/guard/calls/system_calls.inc"
};
#define CALLS (sizeof calls / sizeof *calls)

static const struct {
  const char* reason;
  const char* names;
} left_out[] = {
    {"ends the program, or the thread", " exit exit_group rt_sigreturn "},
    {"makes processes: test_children", " fork vfork clone clone3 "},
    {"waits for ever", " pause rt_sigsuspend "},
    {"signals other processes", " kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo "},
    {"stops or changes the machine",
     " reboot kexec_load kexec_file_load swapon swapoff mount umount2 pivot_root "
     "init_module finit_module delete_module create_module acct settimeofday "
     "clock_settime adjtimex clock_adjtime sethostname setdomainname vhangup syslog "
     "iopl ioperm sync syncfs quotactl "},
    {"changes what this process may do: test_identity",
     " setuid setgid setreuid setregid setresuid setresgid setfsuid "
     "setfsgid setgroups capset setsid setpgid unshare setns chroot "
     "setrlimit prlimit64 personality alarm seccomp setpriority "
     "landlock_restrict_self umask "},
    {"changes the address space: test_mappings",
     " mmap munmap mremap mprotect brk madvise remap_file_pages mlock mlock2 "
     "munlock mlockall munlockall msync pkey_mprotect pkey_alloc pkey_free "
     "mseal map_shadow_stack shmat shmdt process_madvise mbind "
     "set_mempolicy userfaultfd mincore "},
    {"the kernel keeps the address",
     " rseq set_robust_list set_tid_address sigaltstack rt_sigaction rt_sigprocmask "
     "arch_prctl set_thread_area modify_ldt "},
    {"refused in signal mode", " io_setup io_uring_setup "},
    {"changes descriptors that the test uses", " close close_range dup dup2 dup3 fcntl "},
    {"differs from call to call", " getpid gettid getppid getpgrp getpgid getsid get_robust_list "},
    {"only for the kernel's own code", " uretprobe uprobe restart_syscall "},
};

// What a call gets in place of the default: numbers, and how its memory begins.
static void xattr_args(char** block) {
  *(uint64_t*)block[4] = (uint64_t)block[5], ((uint32_t*)block[4])[2] = 16;
  strcpy(block[3], "user.farside"), memset(block[5], 'v', 16);
}
static void mount_request(char** block) {
  uint32_t head[2] = {24, 0};
  uint64_t rest[2] = {UINT64_MAX /* LSMT_ROOT of listmount */, 0};
  memcpy(block[0], head, sizeof head), memcpy(block[0] + 8, rest, sizeof rest);
}
static void waiters(char** block) {
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t waiter[3] = {0, (uint64_t)block[4 + i], 2 | FUTEX_PRIVATE_FLAG};
    memcpy(block[0] + 24 * i, waiter, sizeof waiter);
  }
}
static void pieces(char** block) {
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t piece[2] = {(uint64_t)block[4 + i], 2000};
    memcpy(block[1] + 16 * i, piece, sizeof piece);
  }
}
static void memory_pieces(char** block) {
  pieces(block);
  uint64_t piece[2] = {(uint64_t)block[2], 3000};
  memcpy(block[3], piece, sizeof piece);
}
static void capability_header(char** block) { *(uint32_t*)block[0] = _LINUX_CAPABILITY_VERSION_3; }
static void size_1000(char** block) { *(uint32_t*)block[2] = 1000; }
static void size_2000(char** block) { *(uint32_t*)block[1] = 2000; }
static void name_of_thread(char** block) { strcpy(block[1], "every-call"); }
static void filter(char** block) {
  uint64_t program[2] = {1, (uint64_t)block[5]}, accept_all = 0x0000ffff00000006;  // BPF_RET | BPF_K
  memcpy(block[3], program, sizeof program), memcpy(block[5], &accept_all, sizeof accept_all);
}

#define P 0x7fff7fff  // the default
#define FILE_FD 3
#define SOCKET_FD 4
static const struct {
  const char* name;
  long argument[6];
  void (*prepare)(char** block);
} recipes[] = {
    {"readv", {P, P, 2}, pieces},
    {"writev", {P, P, 2}, pieces},
    {"preadv", {P, P, 2, 1}, pieces},
    {"pwritev", {P, P, 2, 1}, pieces},
    {"preadv2", {P, P, 2, 1, 0, 0}, pieces},
    {"pwritev2", {P, P, 2, 1, 0, 0}, pieces},
    {"process_vm_readv", {-2, P, 2, P, 1, 0}, memory_pieces},
    {"process_vm_writev", {-2, P, 2, P, 1, 0}, memory_pieces},
    {"futex", {P, FUTEX_WAIT_PRIVATE, 0, P, P, 0}, NULL},
    {"futex_waitv", {P, 2, 0, P, CLOCK_MONOTONIC, 0}, waiters},
    {"futex_wake", {P, 0xffffffff, 1, 2 | FUTEX_PRIVATE_FLAG, 0, 0}, NULL},
    {"futex_wait", {P, 0, 0xffffffff, 2 | FUTEX_PRIVATE_FLAG, P, CLOCK_MONOTONIC}, NULL},
    {"futex_requeue", {P, 0, 1, 1, 0, 0}, waiters},
    {"setsockopt", {SOCKET_FD, SOL_SOCKET, SO_ATTACH_FILTER, P, 16, 0}, filter},
    {"sendto", {SOCKET_FD, P, 16, MSG_DONTWAIT, 0, 0}, NULL},
    {"recvfrom", {SOCKET_FD, P, 16, MSG_DONTWAIT, P, P}, NULL},
    {"getsockname", {SOCKET_FD, P, P, 0, 0, 0}, NULL},
    {"statmount", {P, P, 16, 0, 0, 0}, mount_request},
    {"listmount", {P, P, 1, 0, 0, 0}, mount_request},
    {"setxattrat", {AT_FDCWD, P, 0, P, P, 16}, xattr_args},
    {"getxattrat", {AT_FDCWD, P, 0, P, P, 16}, xattr_args},
    {"listxattrat", {AT_FDCWD, P, 0, P, 16, 0}, NULL},
    {"removexattrat", {AT_FDCWD, P, 0, P, 0, 0}, NULL},
    {"file_getattr", {AT_FDCWD, P, P, 24, 0, 0}, NULL},
    {"file_setattr", {AT_FDCWD, P, P, 24, 0, 0}, NULL},
    {"lsm_get_self_attr", {100, P, P, 0, 0, 0}, size_1000},
    {"lsm_list_modules", {P, P, 0, 0, 0, 0}, size_2000},
    {"capget", {P, P, 0, 0, 0, 0}, capability_header},
    {"prctl", {15 /* PR_SET_NAME */, P, 0, 0, 0, 0}, name_of_thread},
    {"keyctl", {10 /* KEYCTL_SEARCH */, -1, P, P, 0, 0}, NULL},
    {"ptrace", {0x4200, -2, P, P, 0, 0}, NULL},
    {"move_pages", {0, 0, P, 0, P, 0}, NULL},
    {"sched_getaffinity", {0, 128, P, 0, 0, 0}, NULL},
    {"sched_getattr", {0, P, 56, 0, 0, 0}, NULL},
    {"statx", {AT_FDCWD, P, 0, 0x7ff, P, 0}, NULL},
    {"newfstatat", {AT_FDCWD, P, P, 0, 0, 0}, NULL},
    {"readlinkat", {AT_FDCWD, P, P, 16, 0, 0}, NULL},
    {"getcwd", {P, 4000, 0, 0, 0, 0}, NULL},
    {"getrlimit", {7, P, 0, 0, 0, 0}, NULL},
    {"ioctl", {FILE_FD, 0x80086601 /* FS_IOC_GETFLAGS */, P, 0, 0, 0}, NULL},
};

enum { ROOM = 4 * 4096, BEFORE = 8 };  // of one argument's memory; bytes before the end of its first page

static const char* reason_to_leave_out(const char* name) {
  char word[64];
  snprintf(word, sizeof word, " %s ", name);
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
    if (strstr(left_out[i].names, word)) return left_out[i].reason;
  }
  return NULL;
}

// The block of one argument of one call.
static char* block_of(char* arena, size_t call, int argument) {
  return arena + (call * 6 + (size_t)argument) * ROOM + PAGE - BEFORE;
}

static int recipe_of(const char* name) {
  for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
    if (!strcmp(recipes[i].name, name)) return (int)i;
  }
  return -1;
}

static void prepare(char* arena, size_t call, const char* path) {
  char* block[6];
  for (int i = 0; i < 6; i++) {
    block[i] = block_of(arena, call, i);
    memset(block[i], 0, 2 * PAGE);
    if (calls[call].argument[i].kind == TEXT) strcpy(block[i], path);
  }
  int recipe = recipe_of(calls[call].name);
  if (recipe >= 0 && recipes[recipe].prepare) recipes[recipe].prepare(block);
}

static int is_count(const struct call* c, int index) {
  for (int i = 0; i < 6; i++) {
    if (c->argument[i].count == index + 1) return 1;
  }
  return 0;
}

static long argument_of(char* arena, size_t call, int i) {
  int recipe = recipe_of(calls[call].name);
  long wanted = recipe >= 0 ? recipes[recipe].argument[i] : P;
  if (wanted == -2) return getpid();
  if (wanted != P) return wanted;
  if (calls[call].argument[i].kind != NUMBER) return (long)block_of(arena, call, i);
  if (is_count(&calls[call], i)) return 16;
  if (i < 5 && calls[call].argument[i + 1].kind == TEXT) return AT_FDCWD;
  return i > 0 ? 0 : FILE_FD;
}

// Times, numbers of threads and the like: only that the call has succeeded is compared.
static int varies(const char* name) {
  return strstr(
             " getrandom clock_gettime gettimeofday time times getrusage sysinfo getcpu statfs fstatfs ustat stat "
             "lstat "
             "fstat newfstatat statx getitimer timer_gettime timerfd_gettime wait4 waitid cachestat statmount "
             "listmount "
             "getcwd file_getattr sched_getaffinity ptrace get_mempolicy sched_rr_get_interval name_to_handle_at "
             "capget prctl perf_event_open ",
             name) != NULL;
}

static void make(char* arena, size_t call) {
  const struct call* c = &calls[call];
  char word[64];
  long a[6];
  snprintf(word, sizeof word, " %s ", c->name);
  for (int i = 0; i < 6; i++) a[i] = argument_of(arena, call, i);
  errno = 0;
  long r = syscall(c->number, a[0], a[1], a[2], a[3], a[4], a[5]);
  int error = r == -1 ? errno : 0;
  unsigned sum = 0;
  int holds_addresses = recipe_of(c->name) >= 0 && recipes[recipe_of(c->name)].prepare;  // in all blocks but the last
  for (int i = holds_addresses ? 5 : 0; i < 6 && !varies(word); i++) {
    for (size_t k = 0; k < 2 * PAGE; k++) sum = sum * 31 + (unsigned char)block_of(arena, call, i)[k];
  }
  printf("%s: %s, error %d, writes %08x\n", c->name,
         r < 0          ? "fails"
         : varies(word) ? "succeeds"
         : r            ? "counts"
                        : "0",
         error, sum);
}

static void all_calls(void) {
  const char* path = "farside-every-call";
  CHECK(open(path, O_CREAT | O_TRUNC | O_RDWR, 0600) == FILE_FD && write(FILE_FD, "0123456789", 10) == 10 &&
        lseek(FILE_FD, 0, SEEK_SET) == 0);
  CHECK(socket(AF_UNIX, SOCK_DGRAM, 0) == SOCKET_FD);
  char* arena = malloc(CALLS * 6 * ROOM);
  CHECK(arena);
  for (size_t i = 0; i < CALLS; i++) prepare(arena, i, path);
  push_far(arena, PAGE);
  for (size_t k = 0; k < CALLS; k++) {
    size_t i = k * 97 % CALLS;  // in no order that is fetched ahead
    if (reason_to_leave_out(calls[i].name)) continue;
    int fd = open(path, O_CREAT | O_RDWR, 0600);  // a call before may have removed it
    CHECK(fd >= 0 && close(fd) == 0);
    make(arena, i);
  }
  unlink(path);
}

// The list of what is left out names calls, each once.
static void reasons(void) {
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
    char names[1000], *rest = names;
    snprintf(names, sizeof names, "%s", left_out[i].names);
    for (char* name; (name = strtok_r(rest, " ", &rest));) {
      size_t k = 0;
      while (k < CALLS && strcmp(calls[k].name, name) != 0) k++;
      CHECK(k < CALLS);
      printf("%s: %s\n", name, reason_to_leave_out(name));
    }
  }
}

int main(int argc, char** argv) {
  static const struct test_case cases[] = {{"all_calls", all_calls}, {"reasons", reasons}, {NULL, NULL}};
  return run_case(argc, argv, cases);
}
