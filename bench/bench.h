// The program farside-bench: the subcommands of `farside bench`.
#pragma once

namespace farside::bench {

// Parses the command line and runs one benchmark. Returns the exit status of the program. Starts threads and child
// processes; call it once, from main() or a test.
int run_bench(int argc, const char* const* argv);

}  // namespace farside::bench
