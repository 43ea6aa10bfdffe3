// The program break, brk and sbrk: what a program takes with them is far memory, at the addresses where the kernel's
// heap would grow. Some allocators (tcmalloc, those of older programs) take all their memory so. The kernel's own break
// stays where it was before main(). Thread-safe.
#pragma once

namespace farside::preload {

// As the system call brk: the break after the call, which is the old one if it cannot be moved to `wanted`.
long far_brk(void* wanted);

// For fork: the break must not be locked by another thread when the process is copied. Locked before the mappings.
void lock_break();
void unlock_break();

}  // namespace farside::preload
