// The run's token in this process: the descriptor by which it was inherited stays open, hidden from the program, for
// the programs that this one executes (pass_token in guard/process.h). So do the descriptors of a far file.
#pragma once
#include "abi/options.h"

namespace farside::preload {

// Reads the token that the environment names, if it names one. EBADF: it is not there any more.
Status take_token(Options* options);

bool owns_token_fd(int fd);

}  // namespace farside::preload
