// FARSIDE_CHECK_SCOPES=1: a program that does not run under `farside run` is stopped where it uses a raw pointer whose
// scope has ended, an object that has ended, or writes through a pointer for reading. Each object has pages of its own,
// which may be accessed only while a scope is open in which it was deref'ed; the kernel catches all else.
//
// For debugging: a page for each object, which is never used again, and a system call at the first deref in a scope.
// Thread-safe.
#pragma once
#include <cstdint>
#include <unordered_set>

#include "farside/object.h"

namespace farside::scope_check {

// Of a thread or fiber: the objects that its open scopes have deref'ed.
struct CheckedScopes : farside_scopes {
  std::unordered_set<uint64_t> opened;  // page << 1 | for writing
};

// Whether the environment asks for it. The first call, before any object is made, gets ready.
bool enabled();

// As the functions of include/farside/object.h that they stand for. A misuse ends the program with a message.
void* make(uint64_t* owner, const farside_object_type& type);
void destroy(uint64_t* owner);
void* deref(const uint64_t* owner, bool write);
// The outermost scope has ended.
void release(CheckedScopes& scopes);

}  // namespace farside::scope_check
