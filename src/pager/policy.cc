#include "pager/policy.h"

#include "pager/policy/sharded_policy.h"

namespace farside::pager {
namespace {

template <bool kSecondChance>
class FifoOrder {
 public:
  static constexpr unsigned kPasses = 1;
  void add(PageIndex page, PageWord) { queue_.push(page); }
  uint64_t available(unsigned) const { return queue_.size(); }
  uint64_t queued() const { return queue_.size(); }

  Look look(PageTable& table, unsigned, bool spare_hot, PageIndex* page) {
    if (!queue_.pop(page)) return Look::kEmpty;
    if (!kSecondChance || !spare_hot || !cool(table, *page)) return Look::kOut;
    queue_.push(*page);
    return Look::kSpared;
  }

 private:
  PageQueue queue_;
};

}  // namespace

Policy* new_policy(PolicyKind kind, PageTable& table) {
  switch (kind) {
    case PolicyKind::kFifo: return new ShardedPolicy<FifoOrder<false>>(table, "fifo");
    case PolicyKind::kSecondChance: break;
  }
  return new ShardedPolicy<FifoOrder<true>>(table, "second-chance");
}

}  // namespace farside::pager
