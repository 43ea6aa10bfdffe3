// The run's options in this process: the descriptor by which they were inherited stays open, hidden from the program,
// for the programs that this one executes (pass_run_fds in guard/process.h). So do the descriptors of a far file.
#pragma once
#include "abi/options.h"

namespace farside::preload {

// Reads the options of the run from the descriptor that the environment names. EBADF: it is not there any more.
Status take_options(int fd, Options* options);

bool owns_run_fd(int fd);

}  // namespace farside::preload
