// Small experiments on the running kernel: each uses a feature instead of testing for a version or a setting. Those
// that change signal handlers or could crash run in a child process.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside {

// Methods of creating a userfaultfd. The first two also report faults of the kernel; the last only those of user code.
bool userfaultfd_by_syscall();
bool userfaultfd_by_device();
bool userfaultfd_user_mode_only();

// Bits of UFFDIO_API; 0 without any userfaultfd.
uint64_t userfaultfd_features();

// A thread handles its own page faults: SIGBUS on an absent page and on the first write to a protected page, both
// resolved by the handler, with correct contents afterwards.
bool pages_for_itself();

// Syscall User Dispatch: a call from ordinary code is trapped, one from the allowed range is not.
bool traps_system_calls();

// process_madvise(MADV_DONTNEED) on this process over two ranges with one call (kernel 6.16).
bool unmaps_in_batches();

// vmsplice of pages into a pipe; reading the pipe returns their contents. large: 256 pages in a pipe of 1 MiB.
bool holds_pages_in_pipe(bool large);

// A memory file that is mapped twice shows a write through the other mapping.
bool shares_memory_files();

// The kernel reads files while the caller goes on (io_setup), for far files.
bool reads_files_in_background();

// The largest of `wanted`, a half, a quarter, ... down to 1 GiB that can be reserved as addresses; 0 if none.
uint64_t reservable_space(uint64_t wanted);

// Medians in microseconds, negative where it cannot be measured.
double tcp_round_trip_us();  // 4 KiB over loopback, both sides polling
double shm_copy_us();        // 4 KiB out of a mapped memory file

}  // namespace farside
