// A scope in which far objects may be used. C++17.
//
//   farside::deref_scope scope;
//   const Node* node = pointer.deref(scope);
//
// A pointer that deref() returns is valid until the outermost scope of the calling thread or fiber ends. Until then the
// object is not moved. Its page may be evicted; an access fetches it again, at the same address.
//
// Thread-safety: a scope belongs to the thread or fiber that created it. Cost: about 19 instructions for an outermost
// scope, with plain stores only; the evacuator orders them by membarrier(2), as in RCU. A long scope delays the moving
// of objects, and so the reuse of memory, but never eviction. Source of the idea: AIFM 4.2.2 (docs/references.md).
#ifndef FARSIDE_SCOPE_HPP
#define FARSIDE_SCOPE_HPP

#include <farside/object.h>

namespace farside {

class deref_scope {
 public:
  deref_scope() : scopes_(farside_scope_begin()) {}
  ~deref_scope() { farside_scope_end(scopes_); }
  deref_scope(const deref_scope&) = delete;
  deref_scope& operator=(const deref_scope&) = delete;

 private:
  farside_scopes* scopes_;
};

}  // namespace farside
#endif
