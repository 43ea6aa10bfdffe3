// The mmap family of the program: private anonymous mappings of 64 KiB and more are placed in far space, with the
// results, errors and protections that the kernel gives. Smaller ones, stacks, files and shared memory are near.
// Thread-safe. Called by the libc wrappers and by the SIGSYS handler, with signals blocked while the list is locked.
// Results are those of the kernel: an address, 0, or -errno.
#pragma once
#include <sys/types.h>

#include <cstddef>

#include "pager/pager.h"

namespace farside::preload {

inline constexpr long kMseal = 462;                            // Linux 6.10; older headers lack it
inline constexpr int kGuardInstall = 102, kGuardRemove = 103;  // Linux 6.13

// Before this, all mappings are near. Called once, before main().
void enable_far_mappings(pager::Pager* pager);

long far_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);
long far_munmap(void* address, size_t bytes);
long far_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address);
long far_mprotect(void* address, size_t bytes, int protection);
long far_pkey_mprotect(void* address, size_t bytes, int protection, int key);
long far_mseal(void* address, size_t bytes, unsigned long flags);
long far_madvise(void* address, size_t bytes, int advice);
// Pages that have content are resident, wherever they are. `resident` must be near, as by pins.
long far_mincore(void* address, size_t bytes, unsigned char* resident);
long far_msync(void* address, size_t bytes, int flags);
// mlock of far memory succeeds without effect, with one warning: it would defeat the purpose of far memory. mlockall
// likewise, since it would fetch all of far space. Other calls are passed to the kernel.
long far_mlock(long number, void* address, size_t bytes, long flags);

// Far memory for the program break, at these addresses. An error if something is mapped there.
long far_map_break(uint64_t begin, uint64_t end);

// As Pager::inherit_in_fork, while no mapping changes.
void inherit_far_memory(bool inherit);

// Calls visit(begin, end) for each range outside of the far space that is or may become far. None if a mapping is being
// changed. Async-signal-safe.
void visit_far_mappings_outside(void (*visit)(void* argument, uint64_t begin, uint64_t end), void* argument);
template <typename Visit>
void visit_far_mappings_outside(Visit visit) {
  auto call = [](void* argument, uint64_t begin, uint64_t end) { (*static_cast<Visit*>(argument))(begin, end); };
  visit_far_mappings_outside(call, &visit);
}

// In the child of a fork, when its far memory works: what MADV_DONTFORK and MADV_WIPEONFORK said.
void change_mappings_in_child();

// For fork: the list must not be locked by another thread when the process is copied.
void lock_mappings();
void unlock_mappings();

}  // namespace farside::preload
