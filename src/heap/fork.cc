#include "heap/fork.h"

#include "heap/guard.h"
#include "heap/mappings.h"
#include "heap/runtime.h"
#include "objects/api.h"

namespace farside::heap {

ForkScope::ForkScope() {
  objects::before_fork();
  lock_mappings();
  guard_pager()->prepare_fork();
}

void ForkScope::in_parent(bool forked) {
  guard_pager()->fork_in_parent(forked);
  unlock_mappings();
  objects::after_fork_in_parent();
}

void ForkScope::in_child() {
  guard_pager()->fork_in_child();
  unlock_mappings();
  objects::after_fork_in_child();
  repin_in_child();
  note_fork_in_child();
}

}  // namespace farside::heap
