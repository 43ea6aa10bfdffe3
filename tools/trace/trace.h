// The program farside-trace, which `farside trace` executes.
#pragma once

namespace farside::trace {

int run_trace(int argc, const char* const* argv);

}  // namespace farside::trace
