// Named points at which a test makes an operation fail, or pauses it to force a race. Compiled to nothing unless
// FARSIDE_EXPENSIVE_CHECKS is defined. And what tests ask about the build.
#pragma once
#include <cstdint>

namespace farside {
// With a sanitizer threads, forks and accesses take many times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
}  // namespace farside

namespace farside::inject {

#ifdef FARSIDE_EXPENSIVE_CHECKS
// True if the operation at this point has to fail now. Thread-safe, async-signal-safe.
bool fails(const char* point);
// Calls the function that the test has set for this point, if any. Thread-safe.
void pause(const char* point);

// Arms a point. arm_failure: every call fails, every n-th if every > 1, none if it is 0; while threads run, one thread
// may arm failures. arm_pause is not thread-safe: arm before threads start.
void arm_failure(const char* point, uint64_t every);
void arm_pause(const char* point, void (*action)(void*), void* context);
#else
inline bool fails(const char*) { return false; }
inline void pause(const char*) {}
#endif

}  // namespace farside::inject
