// Makes a policy of a kind. Their orders are in orders.h and two_queue.h.
#pragma once
#include "pager/policy/policy.h"

namespace farside::pager {

Policy* new_policy(PolicyKind kind, PageTable& table);

}  // namespace farside::pager
