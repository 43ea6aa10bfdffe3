#include "sandbox/filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "sandbox/protocol.h"

namespace farside::sandbox {
namespace {

constexpr uint32_t kKill = SECCOMP_RET_KILL_PROCESS, kAllow = SECCOMP_RET_ALLOW, kRefuse = SECCOMP_RET_ERRNO | EPERM;
// The call does nothing and returns 0.
constexpr uint32_t kSkip = SECCOMP_RET_ERRNO;

// A filter in classic BPF. Each rule compares the number of the call, and goes on to the next rule if it is another.
class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    end(kKill);
    load(offsetof(seccomp_data, nr));
  }

  void rule(long number, uint32_t verdict) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
    end(verdict);
  }
  // Allows the call if the lower half of argument `index`, masked, is one of two values; else it fails with EPERM.
  void rule_if(long number, unsigned index, uint32_t mask, uint32_t value, uint32_t other) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 6);
    load(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
    add(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 2, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, other, 1, 0);
    end(kRefuse);
    end(kAllow);
  }

  // The call fails with EPERM if the lower half of argument `index`, masked, is this value; else the next rules decide.
  void refuse_if(long number, unsigned index, uint32_t mask, uint32_t value) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 5);
    load(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
    add(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    end(kRefuse);
    load(offsetof(seccomp_data, nr));
  }

  int install(uint32_t otherwise) {
    end(otherwise);
    sock_fprog program = {static_cast<unsigned short>(code_.size()), code_.data()};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : -errno;
  }

 private:
  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset), 0, 0); }
  void end(uint32_t verdict) { add(BPF_RET | BPF_K, verdict, 0, 0); }
  void add(int operation, uint32_t operand, uint8_t if_true, uint8_t if_false) {
    code_.push_back({static_cast<uint16_t>(operation), if_true, if_false, operand});
  }
  std::vector<sock_filter> code_;
};

// What neither reaches anything nor is worth ending a function for.
constexpr long kHarmless[] = {SYS_rt_sigprocmask, SYS_rt_sigaction,    SYS_sigaltstack, SYS_gettid,
                              SYS_getpid,         SYS_tgkill,          SYS_newfstatat,  SYS_fstat,
                              SYS_ioctl,          SYS_getuid,          SYS_geteuid,     SYS_rseq,
                              SYS_lseek,          SYS_openat,          SYS_writev,      SYS_readlink,
                              SYS_close,          SYS_set_robust_list, SYS_prlimit64,   SYS_sched_getaffinity};

void allow_memory_and_time(Filter& filter) {
  for (long number : {SYS_munmap, SYS_brk, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_clock_gettime,
                      SYS_gettimeofday, SYS_time, SYS_clock_getres, SYS_getcpu, SYS_getrandom})
    filter.rule(number, kAllow);
  // libc ends the process when it cannot wake other threads. There is one only.
  filter.rule(SYS_futex, kSkip);
  filter.rule_if(SYS_madvise, 2, ~0u, MADV_DONTNEED, MADV_FREE);
}

// Anonymous: RLIMIT_DATA does not count it, and ranges make RLIMIT_AS large. Files that could hold memory cannot be
// made.
void refuse_shared_memory(Filter& filter) {
  filter.refuse_if(SYS_mmap, 3, MAP_TYPE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS);
}

}  // namespace

// mmap may map anything that is open; RLIMIT_AS bounds how much. Both filters apply to calls of functions later.
int install_loading_filter() {
  Filter filter;
  refuse_shared_memory(filter);
  for (long number :
       {SYS_mmap, SYS_mprotect, SYS_openat, SYS_read, SYS_pread64, SYS_write, SYS_close, SYS_fstat, SYS_newfstatat,
        SYS_lseek, SYS_seccomp, SYS_access, SYS_readlink, SYS_recvfrom, SYS_sched_yield, SYS_mremap})
    filter.rule(number, kAllow);
  allow_memory_and_time(filter);
  return filter.install(kRefuse);
}

int install_call_filter() {
  Filter filter;
  for (long number : {SYS_read, SYS_recvfrom, SYS_write}) filter.rule_if(number, 0, ~0u, kControlFd, kConnectionFd);
  filter.rule(SYS_sched_yield, kAllow);  // the host, where the client may need its core
  refuse_shared_memory(filter);
  filter.rule_if(SYS_mmap, 2, PROT_EXEC, 0, 0);
  filter.rule(SYS_mremap, kAllow);                             // the host moves ranges
  filter.rule_if(SYS_mprotect, 2, ~0u, PROT_NONE, PROT_READ);  // and opens them
  allow_memory_and_time(filter);
  for (long number : kHarmless) filter.rule(number, kRefuse);
  return filter.install(kKill);
}

}  // namespace farside::sandbox
