// A scope in which far objects may be used. Pointers that deref() gives are valid until the outermost scope of the
// calling thread (or fiber) ends; what they point to may leave near memory meanwhile, and comes back when it is
// touched, but does not move.
//
//   farside::deref_scope scope;
//   const Node* node = pointer.deref(scope);
//
// Cost: a few plain stores (AIFM 4.2.2; the waiting side pays, as in RCU). Long scopes delay only the moving of
// objects, never eviction. A scope belongs to the thread or fiber that made it.
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
