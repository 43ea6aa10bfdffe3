// Threads of Farside do not keep a process that the program's last thread has left by the system call exit: libc's
// clone and runtimes without libc end so. An evictor looks for it, since in handler mode no thread's end is trapped.
#pragma once

namespace farside::preload {

// A thread of this process ends with this status, which is the process's if no other thread of the program is left.
// Async-signal-safe.
void note_thread_end(int status);

// Whether no other thread is left. Farside must have none. Async-signal-safe.
bool is_last_thread();

// True if only threads of Farside are left. Then status is what the process ends with.
bool program_has_ended(int* status);

}  // namespace farside::preload
