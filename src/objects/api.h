// The C functions of include/farside/object.h on the one ObjectSpace of the process, and the functions by which the
// preload library and tests control it. The ObjectSpace and its evacuator thread are created with the first object.
#pragma once
#include "objects/evacuator.h"

namespace farside::objects {

// Sets the pager and the paths for far objects (path_selector.h). Before the first object.
void enable_objects(pager::Pager* pager, Paths paths, double page_share = Options().page_share);
// Ends the evacuator and deletes the object space. For tests, when no object is left.
void disable_objects();

// To be called by a thread that ends.
void forget_thread();
// The fiber with these scopes has ended.
void drop_scopes(farside_scopes* scopes);

// For calls on memory servers: see ObjectSpace. No structures: nothing to do.
int stop_moves(uint64_t structures);
uint64_t stopped_here();  // by the calling thread or fiber itself
void permit_moves(uint64_t structures);
ssize_t list_memory(uint64_t structures, std::span<std::span<std::byte>> out);

// Around a fork: before Pager::prepare_fork, and after its counterparts.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();
// Restarts the evacuator. From ordinary code of the child.
void start_threads_in_child();

}  // namespace farside::objects
