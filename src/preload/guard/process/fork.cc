#include "preload/guard/process/fork.h"

#include "objects/api.h"
#include "preload/guard/process/process.h"
#include "preload/guard/thread/pins.h"
#include "preload/heap/mappings.h"
#include "preload/heap/program_break.h"

namespace farside::preload {

ForkScope::ForkScope() {
  objects::before_fork();
  lock_break();
  lock_mappings();
  guard_pager()->forks().prepare();
}

void ForkScope::in_parent(bool forked) {
  guard_pager()->forks().in_parent(forked);
  unlock_mappings();
  unlock_break();
  objects::after_fork_in_parent();
}

void ForkScope::in_child() {
  guard_pager()->forks().in_child();
  unlock_mappings();
  unlock_break();
  change_mappings_in_child();
  objects::after_fork_in_child();
  repin_in_child();
  note_fork_in_child();
}

}  // namespace farside::preload
