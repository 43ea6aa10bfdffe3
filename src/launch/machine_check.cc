#include "launch/machine_check.h"

#include <fmt/format.h>

#include "launch/probes.h"
#include "report/machine.h"

namespace farside {

Finding finding(std::string name, Health health, std::string found, std::string advice) {
  if (health == Health::kOk) advice.clear();
  return {std::move(name), health, std::move(found), std::move(advice)};
}

Finding check_userfaultfd(bool by_syscall, bool by_device, bool user_only) {
  std::string sysctl = read_line("/proc/sys/vm/unprivileged_userfaultfd");
  std::string setting = sysctl.empty() ? "" : fmt::format(" (vm.unprivileged_userfaultfd={})", sysctl);
  if (by_syscall) return finding("userfaultfd", Health::kOk, "all faults, by the system call" + setting, "");
  if (by_device) return finding("userfaultfd", Health::kOk, "all faults, by /dev/userfaultfd" + setting, "");
  if (user_only) {
    return finding("userfaultfd", Health::kLimited, "faults of user code only" + setting,
                   "enough for signal mode; for handler mode: chmod a+rw /dev/userfaultfd, or "
                   "sysctl vm.unprivileged_userfaultfd=1");
  }
  return finding("userfaultfd", Health::kMissing, "refused" + setting,
                 "a container may forbid it: allow the userfaultfd system call, or pass --device /dev/userfaultfd");
}

Finding check_self_paging(bool works) {
  return finding("self-paging", health_of(works, Health::kLimited),
                 works ? "a fault and a first write were served on SIGBUS" : "SIGBUS faults were not delivered",
                 "signal mode will not work; handler mode, which is slower, can");
}

Finding check_dispatch(bool works) {
  return finding("system call guard", health_of(works, Health::kLimited),
                 works ? "Syscall User Dispatch traps calls" : "no Syscall User Dispatch",
                 "signal mode needs CONFIG_GENERIC_ENTRY and Linux 5.11; handler mode does not need it");
}

Finding check_pipe() {
  bool large = holds_pages_in_pipe(true);
  bool works = large || holds_pages_in_pipe(false);
  if (!works) {
    return finding("page hold", Health::kMissing, "vmsplice into a pipe is refused",
                   "permit pipe2 and vmsplice in the container's seccomp profile");
  }
  return finding("page hold", health_of(large, Health::kLimited),
                 large ? "vmsplice holds 256 pages in a pipe" : "vmsplice holds pages, in small pipes only",
                 "works, with more time per eviction; raise fs.pipe-max-size to 1048576 and fs.pipe-user-pages-soft: a "
                 "process that evicts uses 1024 pages");
}

Finding check_memory_files() {
  bool works = shares_memory_files();
  return finding("memory files", health_of(works, Health::kLimited),
                 works ? "memfd shared between mappings" : "refused",
                 "the shm transport and the embedded server need memfd_create; use --far tcp://");
}

Finding check_file_requests() {
  bool works = reads_files_in_background();
  return finding("far files", health_of(works, Health::kLimited),
                 works ? "asynchronous file I/O works" : "asynchronous file I/O is refused",
                 "--far file: works, but every transfer waits; raise fs.aio-max-nr, or permit io_setup, io_submit and "
                 "io_getevents in the container's seccomp profile");
}

namespace {

// Of the fault mode that the options select.
Finding check_fault_mode(FaultMode fault) {
  bool by_syscall = userfaultfd_by_syscall(), by_device = !by_syscall && userfaultfd_by_device();
  if (fault == FaultMode::kHandler) {
    Finding kernel_faults = check_userfaultfd(by_syscall, by_device, userfaultfd_user_mode_only());
    if (kernel_faults.health != Health::kOk) kernel_faults.health = Health::kMissing;
    return kernel_faults;
  }
  FaultAbilities abilities = {pages_for_itself(), traps_system_calls(), by_syscall || by_device};
  ModeChoice choice = choose_mode(abilities);
  bool works = choice.usable && (fault == FaultMode::kAuto || choice.mode == "signal");
  if (works) return finding("fault mode", Health::kOk, choice.mode, "");
  if (fault == FaultMode::kAuto) {
    return finding("fault mode", Health::kMissing, choice.reason,
                   check_userfaultfd(by_syscall, by_device, userfaultfd_user_mode_only()).advice);
  }
  Finding lacking = abilities.self_paging ? check_dispatch(false) : check_self_paging(false);
  lacking.health = Health::kMissing;
  return lacking;
}

Status refuse_missing(std::initializer_list<Finding> findings) {
  for (const Finding& f : findings) {
    if (f.health == Health::kMissing)
      return Status::error(ENOTSUP, "this machine lacks what the run needs: {}: {}; {}", f.name, f.found, f.advice);
  }
  return {};
}

// What doctor calls a limit, because it cannot know whether it is needed.
Finding needed(Finding found) {
  if (found.health != Health::kOk) found.health = Health::kMissing;
  return found;
}

}  // namespace

ModeChoice choose_mode(const FaultAbilities& abilities) {
  if (abilities.self_paging && abilities.traps_syscalls) {
    return {true, "signal", "threads can handle their own faults and the system call guard can be armed"};
  }
  std::string lack =
      abilities.self_paging ? "the system call guard cannot be armed" : "SIGBUS faults are not delivered";
  if (abilities.kernel_faults) return {true, "handler", lack};
  return {false, "none", lack + ", and handler mode needs a userfaultfd that also reports faults of the kernel"};
}

Status check_machine(const Options& options, bool shares_memory) {
  Finding files = shares_memory ? check_memory_files() : finding("memory files", Health::kOk, "not needed", "");
  return refuse_missing({check_fault_mode(options.fault), check_pipe(), needed(files)});
}

Status check_paging() {
  bool all_faults = userfaultfd_by_syscall() || userfaultfd_by_device();
  return refuse_missing({check_userfaultfd(all_faults, false, userfaultfd_user_mode_only()),
                         needed(check_self_paging(pages_for_itself())), check_pipe(), needed(check_memory_files())});
}

}  // namespace farside
