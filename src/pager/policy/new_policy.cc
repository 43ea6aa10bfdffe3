#include "pager/policy/new_policy.h"

#include "pager/policy/orders.h"
#include "pager/policy/sharded_policy.h"
#include "pager/policy/two_queue.h"

namespace farside::pager {

Policy* new_policy(PolicyKind kind, PageTable& table) {
  const char* name = policy_name(kind).data();
  switch (kind) {
    case PolicyKind::kFifo:
      return new ShardedPolicy<FifoOrder>(table, name);
    case PolicyKind::kLru:
      return new ShardedPolicy<GenerationsOrder>(table, name);
    case PolicyKind::kPriority:
      return new ShardedPolicy<PriorityOrder>(table, name);
    case PolicyKind::kTwoQueue:
      break;
  }
  return new ShardedPolicy<TwoQueueOrder>(table, name);
}

}  // namespace farside::pager
