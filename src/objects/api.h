// The C functions of include/farside/object.h on one ObjectSpace of the process.
#pragma once
#include "objects/evacuator.h"

namespace farside::objects {

// Lets programs make far objects on this pager. The space and its thread come to life with the first object.
void enable_objects(pager::Pager* pager, Paths paths);
// Ends the thread and forgets the space; for tests, when no object is left.
void disable_objects();

void forget_thread();
void drop_scopes(farside_scopes* scopes);

// Around a fork, before the pager's own preparation, and after it.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
// From ordinary code of the child.
void start_threads_in_child();

}  // namespace farside::objects
