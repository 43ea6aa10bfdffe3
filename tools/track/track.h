// The program farside-track, which `farside track` executes.
#pragma once

namespace farside::track {

int run_track(int argc, const char* const* argv);

}  // namespace farside::track
