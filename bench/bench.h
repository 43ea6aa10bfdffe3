// The subcommands of `farside bench`.
#pragma once

namespace farside::bench {

// The whole program behind main(). Returns the exit status.
int run_bench(int argc, const char* const* argv);

}  // namespace farside::bench
