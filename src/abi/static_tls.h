// Audit libraries (LD_AUDIT) and the C library's copies for them use up what the dynamic linker sets aside for
// thread-local variables at fixed offsets, which the preload library needs as well: it would not be loaded. A tunable
// of glibc sets more aside. The launcher and the guard of exec set it for programs with LD_AUDIT, and the preload
// library hides it from the program. Async-signal-safe.
#pragma once
#include <cstddef>
#include <cstring>

namespace farside {

inline constexpr char kAuditVariable[] = "LD_AUDIT";
inline constexpr char kTunablesVariable[] = "GLIBC_TUNABLES";
inline constexpr char kStaticTlsTunable[] = "glibc.rtld.optional_static_tls=16384";

// Bytes that write_tunables writes at most. `present`: the value of GLIBC_TUNABLES, or nullptr.
inline size_t room_for_tunables(const char* present) {
  return (present ? strlen(present) + 1 : 0) + sizeof kStaticTlsTunable;
}

// Writes `present`, and the tunable if it lacks that. Returns the terminating zero.
inline char* write_tunables(char* to, const char* present) {
  if (!present || !*present) return stpcpy(to, kStaticTlsTunable);
  to = stpcpy(to, present);
  return strstr(present, kStaticTlsTunable) ? to : stpcpy(stpcpy(to, ":"), kStaticTlsTunable);
}

}  // namespace farside
