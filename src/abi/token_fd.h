// The token of a run as its processes inherit it: a descriptor of sealed memory, whose number the variable
// FARSIDE_TOKEN_FD names. So it is in no environment, which other processes can read and programs pass on.
#pragma once
#include <cstddef>
#include <string_view>

namespace farside {

// A descriptor that programs inherit, with a high number; or -errno.
int make_token_fd(std::string_view token);

// Stores the token, terminated. Returns 0 or -errno: -EBADF if this is not such a descriptor, -E2BIG if there is no
// room. Async-signal-safe.
int read_token_fd(int fd, char* token, size_t room);

// The token of a run with a far file: "FILE,SPACE", the descriptors of the file and of its table, which the processes
// of the run inherit as well. False: another token. Async-signal-safe.
struct FarFileFds {
  int file = -1;
  int space = -1;
};
bool parse_far_file_fds(const char* token, FarFileFds* fds);

}  // namespace farside
