/* The scopes of far objects that one thread or fiber has open (<farside/scope.hpp>). The fiber runtime owns the
 * variable: it saves and restores it when it switches fibers. Programs use <farside/scope.hpp>. */
#ifndef FARSIDE_SCOPE_STATE_H
#define FARSIDE_SCOPE_STATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The scopes of one thread or fiber. Written by that thread or fiber only; the evacuator reads it. */
struct farside_scopes {
  uint64_t epoch; /* farside_epoch when the outermost scope began; 0: no scope is open */
  uint32_t depth; /* nested scopes that are open */
  uint32_t held;  /* segments that must not be emptied before the outermost scope ends */
};
/* Those of the calling thread or fiber; NULL before its first scope. */
extern __thread struct farside_scopes* farside_scopes_here __attribute__((tls_model("initial-exec")));

#ifdef __cplusplus
}
#endif
#endif
