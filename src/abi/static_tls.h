// Audit libraries (LD_AUDIT) and the C library's copies for them use up what the dynamic linker sets aside for
// thread-local variables at fixed offsets, which the preload library needs as well: it would not be loaded. A tunable
// of glibc sets more aside. The launcher and the guard of exec set it for programs with LD_AUDIT, and the preload
// library hides it from the program.
#pragma once

namespace farside {

inline constexpr char kAuditVariable[] = "LD_AUDIT";
inline constexpr char kTunablesVariable[] = "GLIBC_TUNABLES";
inline constexpr char kStaticTlsTunable[] = "glibc.rtld.optional_static_tls=16384";

}  // namespace farside
