// The checks of FARSIDE_CHECK_SCOPES=1, for a program that does not run under `farside run`. The program is stopped
// where it uses a raw pointer after its scope, uses a destroyed object, or writes through a pointer for reading. Each
// object has pages that no other object shares; they are accessible only while a scope is open in which it was
// dereferenced.
//
// For debugging: it costs a page of memory for each object, which is never reused, and a system call at the first
// dereference of an object in a scope. Thread-safe. Not async-signal-safe, except for the handler inside.
#pragma once
#include <cstdint>
#include <unordered_set>

#include "farside/object.h"

namespace farside::scope_check {

// The scopes of a thread or fiber, with the objects that were dereferenced in them.
struct CheckedScopes : farside_scopes {
  std::unordered_set<uint64_t> opened;  // first page << 1 | 1 if for writing
};

// Whether the environment requests the checks. The first call, before any object is created, reserves memory and
// installs the handler.
bool enabled();

// The implementations of farside_object_new, _delete and _deref with checks. A misuse ends the program with a message.
void* make(uint64_t* owner, const farside_object_type& type);
void destroy(uint64_t* owner);
void* deref(const uint64_t* owner, bool write);
// The outermost scope has ended: its objects become inaccessible unless another thread's scope uses them.
void release(CheckedScopes& scopes);

}  // namespace farside::scope_check
