// The program farside-top, which `farside top` executes.
#pragma once

namespace farside::top {

int run_top(int argc, const char* const* argv);

}  // namespace farside::top
