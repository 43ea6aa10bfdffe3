// Named points at which a test makes an operation fail or pause. Compiled to nothing unless FARSIDE_EXPENSIVE_CHECKS
// is defined. Races are forced at pause points, never by sleeping.
#pragma once
#include <cstdint>

namespace farside::inject {

#ifdef FARSIDE_EXPENSIVE_CHECKS
// True when the test armed this point. Async-signal-safe.
bool fails(const char* point);
// Calls the test's function for this point, if any.
void pause(const char* point);

// Arms a point: every call fails, or every n-th if every > 1. Not thread-safe: arm before threads start.
void arm_failure(const char* point, uint64_t every);
void arm_pause(const char* point, void (*action)(void*), void* context);
#else
inline bool fails(const char*) { return false; }
inline void pause(const char*) {}
#endif

}  // namespace farside::inject
