// Thread-local storage for threads that libc does not know. Needs glibc, which offers these functions to its own parts.
#pragma once

namespace farside {

// True if the functions below exist. Not async-signal-safe at its first call.
bool can_make_thread_storage();

// Storage with the initial values of all thread-local variables, and the stack and pointer guards of the calling
// thread, which must have storage of libc's kind. The result is the thread pointer; nullptr: out of memory. libc
// allocates it with malloc, and takes a lock that only these functions and the dynamic linker take. Calls of threads
// that libc does not know must exclude each other.
void* make_thread_storage();
void free_thread_storage(void* thread_pointer);

}  // namespace farside
