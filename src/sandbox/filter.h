// The system calls that remain for foreign code. Both filters apply to the calling process for good; they need
// PR_SET_NO_NEW_PRIVS. Others than the listed calls end the process with SIGSYS, or fail with EPERM where libc or the
// constructors of a program try them without need.
#pragma once

namespace farside::sandbox {

// For loading: also reads files, of which there are only the client's own, and maps them. 0 or -errno.
int install_loading_filter();
// For calls: memory, time, exit, the descriptors of the region, and the socket to the server. 0 or -errno.
int install_call_filter();

}  // namespace farside::sandbox
