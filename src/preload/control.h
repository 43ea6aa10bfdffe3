// The process's side of `farside ctl` (base/control.h): looks for requests, changes the budget, tells what goes on.
#pragma once
#include <cstddef>

namespace farside::pager {
class Pager;
}

namespace farside::preload {

// Writes a line of JSON about this process; returns its bytes.
using WriteReport = size_t (*)(char* line, size_t room);

// Makes the page; a process without one (no descriptors left) works, and cannot be controlled.
void open_control(pager::Pager* pager, WriteReport report);

// The child of a fork gets a page of its own; the parent's is the parent's.
void reopen_control_in_child();

// Obeys what was asked since the last call. For one thread, some ten times a second; never waits.
void serve_control();

bool owns_control_fd(int fd);

}  // namespace farside::preload
