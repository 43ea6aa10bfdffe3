// What the guarded calls need of the process as a whole. runtime.cc and static_program.cc implement it.
#pragma once

namespace farside::preload {

// True if Farside uses the descriptor. The guard protects it from the program. Async-signal-safe.
bool owns_fd(int fd);

// The descriptor that has the options of the run, or -1.
int run_fd();

// Whether programs that this process executes inherit that descriptor, and those of a far file. They do unless this is
// called. Async-signal-safe.
void pass_run_fds(bool pass);

// Appends the statistics and the trace of this process to the launcher's files. Later calls do nothing.
void report_at_exit();

// Whether this process does so also when a request to end (SIGINT, SIGTERM, SIGHUP) ends it by its default action.
bool reports_when_asked_to_end();
// To be called before that action: a thread of Farside writes the report. Waits until it has, but only for a second if
// it does not begin, and not at all for a second request. Async-signal-safe.
void report_before_end();

// The file of the static program that this process runs, or "".
const char* static_program_path();

// Releases what Farside keeps for the calling thread, which is about to end with this status.
void end_thread(int status);

// Notes for the launcher: this process becomes another program, or did not; a program that it starts runs without
// Farside.
void note_exec();
void note_failed_exec();
void note_native_program(const char* path, const char* reason);

// In the child of a fork whose memory allocator no thread holds: starts its evictors. libc's fork does so by itself.
void start_threads_in_child();

// Called in the child of a fork: its counters, report and trace begin again.
void note_fork_in_child();

// Whether programs that this one executes may be static: they need signal mode, and inherit the mode.
bool serves_static_programs();

// Whether faults are served by handler threads (--fault=handler) and not by signals.
bool in_handler_mode();

}  // namespace farside::preload
