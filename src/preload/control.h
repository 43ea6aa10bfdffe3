// The process's side of `farside ctl` and `farside plan -p`: a page of shared memory (abi/control.h) that is polled for
// requests to change the budget, to report, and to sample pages. Used by one thread, the pager's regular caller; not
// async-signal-safe.
#pragma once
#include <cstddef>

namespace farside::pager {
class Pager;
}

namespace farside::preload {

// Writes a line of JSON about this process; returns its bytes.
using WriteReport = size_t (*)(char* line, size_t room);

// Creates the page. A process that cannot create it (no descriptors left) runs without, and cannot be controlled.
void open_control(pager::Pager* pager, WriteReport report);

// Called in the child of a fork: replaces the parent's page by a new one.
void reopen_control_in_child();

// Executes a request that has arrived since the last call. Called by one thread some ten times a second; never waits.
void serve_control();

// Whether the descriptor is that of the page. Programs must not close it.
bool owns_control_fd(int fd);

}  // namespace farside::preload
