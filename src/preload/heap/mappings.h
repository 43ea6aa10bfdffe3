// The mmap family on far space: private anonymous mappings of some size live there, with the semantics of mmap, munmap,
// mremap, mprotect and madvise. Smaller ones, stacks, files and shared memory stay near.
// Thread-safe. Results follow the kernel: an address or -errno.
#pragma once
#include <sys/types.h>

#include <cstddef>

#include "pager/pager.h"

namespace farside::preload {

void enable_far_mappings(pager::Pager* pager);

long far_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);
long far_munmap(void* address, size_t bytes);
long far_mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, void* new_address);
long far_mprotect(void* address, size_t bytes, int protection);
long far_madvise(void* address, size_t bytes, int advice);
// Locking far memory near would defeat its purpose: accepted, said once, and not done. mlockall likewise, since it
// would pull in all of far space.
long far_mlock(long number, void* address, size_t bytes, long flags);

// fork: keeps the list of mappings whole.
void lock_mappings();
void unlock_mappings();

}  // namespace farside::preload
