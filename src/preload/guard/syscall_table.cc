#include "preload/guard/syscall_table.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <utime.h>

#include <cerrno>

namespace farside::preload {
namespace {

// One argument: what it points to.
struct Arg {
  enum Kind : uint8_t { kNone, kString, kIn, kOut, kInOut };
  Kind kind = kNone;
  uint8_t count_arg = 0;  // 1-based argument that multiplies `bytes`; 0: fixed size
  uint16_t bytes = 0;
  uint8_t shift = 0;  // `bytes` are for so many of what the argument counts, as a power of two
  uint8_t extra = 0;  // beyond what is counted
};

constexpr Arg str() { return {Arg::kString, 0, 0}; }
constexpr Arg in(size_t bytes) { return {Arg::kIn, 0, static_cast<uint16_t>(bytes)}; }
constexpr Arg out(size_t bytes) { return {Arg::kOut, 0, static_cast<uint16_t>(bytes)}; }
constexpr Arg inout(size_t bytes) { return {Arg::kInOut, 0, static_cast<uint16_t>(bytes)}; }
constexpr Arg in_n(int arg, size_t unit = 1) {
  return {Arg::kIn, static_cast<uint8_t>(arg), static_cast<uint16_t>(unit)};
}
constexpr Arg out_n(int arg, size_t unit = 1) {
  return {Arg::kOut, static_cast<uint8_t>(arg), static_cast<uint16_t>(unit)};
}
constexpr Arg inout_n(int arg, size_t unit = 1) {
  return {Arg::kInOut, static_cast<uint8_t>(arg), static_cast<uint16_t>(unit)};
}
// A bit for each of what the argument counts, in whole words.
constexpr Arg inout_bits(int arg) { return {Arg::kInOut, static_cast<uint8_t>(arg), 8, 6}; }
// A byte for each page of what the argument counts.
constexpr Arg out_per_page(int arg) { return {Arg::kOut, static_cast<uint8_t>(arg), 1, kPageShift}; }
// What the argument counts, after a message's type.
constexpr Arg in_message(int arg) { return {Arg::kIn, static_cast<uint8_t>(arg), 1, 0, sizeof(long)}; }
constexpr Arg out_message(int arg) { return {Arg::kOut, static_cast<uint8_t>(arg), 1, 0, sizeof(long)}; }
constexpr Arg no() { return {}; }

struct Entry {
  bool known = false;
  Arg arg[6];
};

constexpr long kCalls = 512;
constexpr size_t kSockaddr = sizeof(sockaddr_storage);

struct Table {
  Entry entry[kCalls] = {};
  constexpr void set(long number, Arg a = {}, Arg b = {}, Arg c = {}, Arg d = {}, Arg e = {}, Arg f = {}) {
    if (entry[number].known) throw "described twice";  // does not compile
    entry[number] = {true, {a, b, c, d, e, f}};
  }
};

constexpr Table make_table() {
  Table t;
#ifdef SYS_open
  // Calls that exist on older architectures only.
  t.set(SYS_open, str());
  t.set(SYS_creat, str());
  t.set(SYS_stat, str(), out(sizeof(struct stat)));
  t.set(SYS_lstat, str(), out(sizeof(struct stat)));
  t.set(SYS_access, str());
  t.set(SYS_chmod, str());
  t.set(SYS_chown, str());
  t.set(SYS_lchown, str());
  t.set(SYS_mkdir, str());
  t.set(SYS_rmdir, str());
  t.set(SYS_unlink, str());
  t.set(SYS_rename, str(), str());
  t.set(SYS_link, str(), str());
  t.set(SYS_symlink, str(), str());
  t.set(SYS_readlink, str(), out_n(3));
  t.set(SYS_mknod, str());
  t.set(SYS_utime, str(), in(sizeof(utimbuf)));
  t.set(SYS_utimes, str(), in(2 * sizeof(timeval)));
  t.set(SYS_futimesat, no(), str(), in(2 * sizeof(timeval)));
  t.set(SYS_pipe, out(8));
  t.set(SYS_poll, inout_n(2, sizeof(pollfd)));
  t.set(SYS_select, no(), inout_bits(1), inout_bits(1), inout_bits(1), inout(sizeof(timeval)));
  t.set(SYS_epoll_wait, no(), out_n(3, sizeof(epoll_event)));
  t.set(SYS_getdents, no(), out_n(3));
  t.set(SYS_time, out(8));
  t.set(SYS_uselib, str());
  t.set(SYS_ustat, no(), out(32));
  t.set(SYS_inotify_init);
  t.set(SYS_signalfd, no(), in_n(3));
  t.set(SYS_alarm);
  t.set(SYS_pause);
  t.set(SYS_getpgrp);
  t.set(SYS_dup2);
  t.set(SYS_epoll_create);
  t.set(SYS_eventfd);
  t.set(SYS_arch_prctl);
#endif
  // Files and directories.
  t.set(SYS_openat, no(), str());
  t.set(SYS_newfstatat, no(), str(), out(sizeof(struct stat)));
  t.set(SYS_fstat, no(), out(sizeof(struct stat)));
  t.set(SYS_statx, no(), str(), no(), no(), out(256));
  t.set(SYS_statfs, str(), out(sizeof(struct statfs)));
  t.set(SYS_fstatfs, no(), out(sizeof(struct statfs)));
  t.set(SYS_faccessat, no(), str());
  t.set(SYS_faccessat2, no(), str());
  t.set(SYS_fchmodat, no(), str());
  t.set(SYS_fchownat, no(), str());
  t.set(SYS_mkdirat, no(), str());
  t.set(SYS_mknodat, no(), str());
  t.set(SYS_unlinkat, no(), str());
  t.set(SYS_renameat, no(), str(), no(), str());
  t.set(SYS_renameat2, no(), str(), no(), str());
  t.set(SYS_linkat, no(), str(), no(), str());
  t.set(SYS_symlinkat, str(), no(), str());
  t.set(SYS_readlinkat, no(), str(), out_n(4));
  t.set(SYS_utimensat, no(), str(), in(2 * sizeof(timespec)));
  t.set(SYS_truncate, str());
  t.set(SYS_chdir, str());
  t.set(SYS_chroot, str());
  t.set(SYS_getcwd, out_n(2));
  t.set(SYS_getdents64, no(), out_n(3));
  t.set(SYS_mount, str(), str(), str(), no(), in(kPageSize));  // the kernel copies what is there of it
  t.set(SYS_umount2, str());
  t.set(SYS_pivot_root, str(), str());
  t.set(SYS_swapon, str());
  t.set(SYS_swapoff, str());
  t.set(SYS_acct, str());
  t.set(SYS_quotactl, no(), str(), no(), inout(256));
  t.set(SYS_setxattr, str(), str(), in_n(4));
  t.set(SYS_lsetxattr, str(), str(), in_n(4));
  t.set(SYS_fsetxattr, no(), str(), in_n(4));
  t.set(SYS_getxattr, str(), str(), out_n(4));
  t.set(SYS_lgetxattr, str(), str(), out_n(4));
  t.set(SYS_fgetxattr, no(), str(), out_n(4));
  t.set(SYS_listxattr, str(), out_n(3));
  t.set(SYS_llistxattr, str(), out_n(3));
  t.set(SYS_flistxattr, no(), out_n(3));
  t.set(SYS_removexattr, str(), str());
  t.set(SYS_lremovexattr, str(), str());
  t.set(SYS_fremovexattr, no(), str());
  t.set(SYS_name_to_handle_at, no(), str(), inout(136), out(4));
  t.set(SYS_open_by_handle_at, no(), inout(136));
  t.set(SYS_openat2, no(), str(), in_n(4));
  t.set(SYS_inotify_add_watch, no(), str());
  t.set(SYS_fanotify_mark, no(), no(), no(), no(), str());
  t.set(SYS_memfd_create, str());
  t.set(SYS_sendfile, no(), no(), inout(8));
  t.set(SYS_copy_file_range, no(), inout(8), no(), inout(8));
  t.set(SYS_splice, no(), inout(8), no(), inout(8));
  t.set(SYS_fcntl, no(), no(), inout(sizeof(struct flock)));
  t.set(SYS_pipe2, out(8));
  // Sockets.
  t.set(SYS_socketpair, no(), no(), no(), out(8));
  t.set(SYS_bind, no(), in_n(3));
  t.set(SYS_connect, no(), in_n(3));
  t.set(SYS_accept, no(), inout(kSockaddr), inout(4));
  t.set(SYS_accept4, no(), inout(kSockaddr), inout(4));
  t.set(SYS_getsockname, no(), inout(kSockaddr), inout(4));
  t.set(SYS_getpeername, no(), inout(kSockaddr), inout(4));
  t.set(SYS_setsockopt, no(), no(), no(), in_n(5));
  t.set(SYS_getsockopt, no(), no(), no(), inout(1024), inout(4));
  // Waiting.
  t.set(SYS_epoll_ctl, no(), no(), no(), in(sizeof(epoll_event)));
  t.set(SYS_eventfd2);
  t.set(SYS_timerfd_settime, no(), no(), in(sizeof(itimerspec)), out(sizeof(itimerspec)));
  t.set(SYS_timerfd_gettime, no(), out(sizeof(itimerspec)));
  t.set(SYS_signalfd4, no(), in_n(3));
  // Time.
  t.set(SYS_nanosleep, in(sizeof(timespec)), out(sizeof(timespec)));
  t.set(SYS_clock_nanosleep, no(), no(), in(sizeof(timespec)), out(sizeof(timespec)));
  t.set(SYS_clock_gettime, no(), out(sizeof(timespec)));
  t.set(SYS_clock_settime, no(), in(sizeof(timespec)));
  t.set(SYS_clock_getres, no(), out(sizeof(timespec)));
  t.set(SYS_gettimeofday, out(sizeof(timeval)), out(8));
  t.set(SYS_settimeofday, in(sizeof(timeval)), in(8));
  t.set(SYS_getitimer, no(), out(sizeof(itimerval)));
  t.set(SYS_setitimer, no(), in(sizeof(itimerval)), out(sizeof(itimerval)));
  t.set(SYS_timer_create, no(), in(64), out(4));
  t.set(SYS_timer_settime, no(), no(), in(sizeof(itimerspec)), out(sizeof(itimerspec)));
  t.set(SYS_timer_gettime, no(), out(sizeof(itimerspec)));
  t.set(SYS_times, out(sizeof(tms)));
  t.set(SYS_adjtimex, inout(208));
  t.set(SYS_clock_adjtime, no(), inout(208));
  // Processes and limits.
  t.set(SYS_wait4, no(), out(4), no(), out(sizeof(rusage)));
  t.set(SYS_waitid, no(), no(), out(128), no(), out(sizeof(rusage)));
  t.set(SYS_getrusage, no(), out(sizeof(rusage)));
  t.set(SYS_getrlimit, no(), out(sizeof(rlimit)));
  t.set(SYS_setrlimit, no(), in(sizeof(rlimit)));
  t.set(SYS_prlimit64, no(), no(), in(sizeof(rlimit)), out(sizeof(rlimit)));
  t.set(SYS_getgroups, no(), out_n(1, 4));
  t.set(SYS_setgroups, no(), in_n(1, 4));
  t.set(SYS_getresuid, out(4), out(4), out(4));
  t.set(SYS_getresgid, out(4), out(4), out(4));
  t.set(SYS_capget, inout(8), out(24));
  t.set(SYS_capset, in(8), in(24));
  t.set(SYS_sched_setaffinity, no(), no(), in_n(2));
  t.set(SYS_sched_getaffinity, no(), no(), out_n(2));
  t.set(SYS_sched_setparam, no(), in(4));
  t.set(SYS_sched_getparam, no(), out(4));
  t.set(SYS_sched_setscheduler, no(), no(), in(4));
  t.set(SYS_sched_setattr, no(), in(64));
  t.set(SYS_sched_getattr, no(), out_n(3));
  t.set(SYS_sched_rr_get_interval, no(), out(sizeof(timespec)));
  t.set(SYS_getcpu, out(4), out(4));
  t.set(SYS_set_mempolicy, no(), in(128));
  t.set(SYS_get_mempolicy, out(4), out(128));
  t.set(SYS_kcmp);
  // The system.
  t.set(SYS_uname, out(sizeof(utsname)));
  t.set(SYS_sysinfo, out(sizeof(struct sysinfo)));
  t.set(SYS_syslog, no(), out_n(3));
  t.set(SYS_sethostname, in_n(2));
  t.set(SYS_setdomainname, in_n(2));
  t.set(SYS_getrandom, out_n(2));
  t.set(SYS_add_key, str(), str(), in_n(4));
  t.set(SYS_request_key, str(), str(), str());
  t.set(SYS_init_module, in_n(2), no(), str());
  t.set(SYS_mincore, no(), no(), out_per_page(2));
  t.set(SYS_bpf, no(), inout_n(3));
  t.set(SYS_perf_event_open, inout(136));
  t.set(SYS_mq_open, str(), no(), no(), in(64));
  t.set(SYS_mq_unlink, str());
  t.set(SYS_mq_timedsend, no(), in_n(3), no(), no(), in(sizeof(timespec)));
  t.set(SYS_mq_timedreceive, no(), out_n(3), no(), out(4), in(sizeof(timespec)));
  t.set(SYS_mq_notify, no(), in(64));
  t.set(SYS_mq_getsetattr, no(), in(64), out(64));
  t.set(SYS_msgsnd, no(), in_message(3));
  t.set(SYS_msgrcv, no(), out_message(3));
  t.set(SYS_msgctl, no(), no(), inout(120));
  t.set(SYS_semop, no(), in_n(3, 6));
  t.set(SYS_semtimedop, no(), in_n(3, 6), no(), in(sizeof(timespec)));
  t.set(SYS_shmctl, no(), no(), inout(112));
  t.set(SYS_rt_sigpending, out_n(2));
  t.set(SYS_rt_sigtimedwait, in_n(4), out(128), in(sizeof(timespec)));
  t.set(SYS_rt_sigqueueinfo, no(), no(), in(128));
  t.set(SYS_rt_tgsigqueueinfo, no(), no(), no(), in(128));
  t.set(SYS_pidfd_send_signal, no(), no(), in(128));
  return t;
}

constexpr Table kTable = make_table();

// Pins the memory of one argument. If some of it is not mapped, the kernel will return EFAULT.
void pin_argument(Pins& pins, const Arg& spec, const Call& call, int index) {
  auto* address = reinterpret_cast<const char*>(call.arg[index]);
  if (spec.kind == Arg::kNone || !is_far(address)) return;
  if (spec.kind == Arg::kString) {
    pins.add_string(address);
    return;
  }
  uint64_t bytes = spec.bytes;
  if (spec.count_arg > 0) {
    long count = call.arg[spec.count_arg - 1];
    if (count < 0 || (count == 0 && spec.extra == 0)) return;
    uint64_t unit = uint64_t{1} << spec.shift;
    bytes = bytes * (align_up(static_cast<uint64_t>(count), unit) >> spec.shift) + spec.extra;
    uint64_t max_bytes = 4 * pin_limit();
    if (bytes > max_bytes) bytes = max_bytes;  // no call in the table needs more; transfers are split in transfers.cc
  }
  pins.add(address, bytes, spec.kind != Arg::kIn);
}

// A call that is not in the table. Every argument that is an address in far space is pinned, to the end of the
// following page. If the kernel accesses other far memory (a structure that contains pointers), the call returns
// EFAULT: README, limits.
long unknown_call(const Call& call) {
  Pins pins(call.stack_pointer);
  for (long argument : call.arg) {
    auto* address = reinterpret_cast<const char*>(argument);
    if (!is_far(address)) continue;
    uint64_t bytes = 2 * kPageSize - static_cast<uint64_t>(argument) % kPageSize;
    // If the memory is read-only this fails, and the kernel cannot write it either.
    pins.add(address, bytes, true);
  }
  return issue(call);
}

bool has_far_argument(const Call& call) {
  for (long argument : call.arg) {
    if (is_far(reinterpret_cast<void*>(argument))) return true;
  }
  return false;
}

}  // namespace

long table_call(const Call& call, long (*issue_pinned)(const Call&)) {
  if (!has_far_argument(call)) return issue_pinned(call);
  if (call.number < 0 || call.number >= kCalls || !kTable.entry[call.number].known) return unknown_call(call);
  Pins pins(call.stack_pointer);
  for (int i = 0; i < 6; i++) pin_argument(pins, kTable.entry[call.number].arg[i], call, i);
  return issue_pinned(call);
}

}  // namespace farside::preload
