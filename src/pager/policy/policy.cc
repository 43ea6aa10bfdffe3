#include "pager/policy/policy.h"

#include "pager/policy/orders.h"
#include "pager/policy/sharded_policy.h"
#include "pager/policy/two_queue.h"

namespace farside::pager {

Policy* new_policy(PolicyKind kind, PageTable& table) {
  const char* name = policy_name(kind).data();
  switch (kind) {
    case PolicyKind::kFifo:
      return new ShardedPolicy<FifoOrder<false>>(table, name);
    case PolicyKind::kSecondChance:
      break;
    case PolicyKind::kLru:
      return new ShardedPolicy<GenerationsOrder>(table, name);
    case PolicyKind::kPriority:
      return new ShardedPolicy<PriorityOrder>(table, name);
    case PolicyKind::kTwoQueue:
      return new ShardedPolicy<TwoQueueOrder>(table, name);
  }
  return new ShardedPolicy<FifoOrder<true>>(table, name);
}

}  // namespace farside::pager
