#include "pager/policy/policy_set.h"

#include <cerrno>

#include "pager/policy/new_policy.h"
#include "pager/policy/shares.h"

namespace farside::pager {

// A change takes well below a microsecond, but its thread may be preempted. A lookup does not wait for that: it returns
// the kind of the process's policy.
PolicyKind PolicyRanges::find(PageIndex page) const {
  constexpr int kTries = 16;
  if (empty()) return others_;
  for (int i = 0; i < kTries; i++) {
    uint32_t version = version_.load(std::memory_order_acquire);
    if (version % 2 != 0) continue;
    PolicyKind kind = search(page);
    if (version_.load(std::memory_order_acquire) == version) return kind;
  }
  return others_;
}

PolicyKind PolicyRanges::search(PageIndex page) const {
  unsigned begin = 0, end = count_.load(std::memory_order_acquire);
  while (begin < end) {
    unsigned middle = (begin + end) / 2;
    if (ranges_[middle].last() < page) begin = middle + 1;
    else end = middle;
  }
  if (begin == kMax || begin == count_.load(std::memory_order_acquire) || ranges_[begin].first() > page) return others_;
  return ranges_[begin].kind.load(std::memory_order_acquire);
}

void PolicyRanges::copy(unsigned to, unsigned from) {
  ranges_[to].bounds.store(ranges_[from].bounds.load(std::memory_order_relaxed), std::memory_order_release);
  ranges_[to].kind.store(ranges_[from].kind.load(std::memory_order_relaxed), std::memory_order_release);
}

void PolicyRanges::add(PageIndex first, PageIndex last, PolicyKind kind) {
  begin_change();
  unsigned at = count();
  for (; at > 0 && ranges_[at - 1].first() > first; at--) copy(at, at - 1);
  ranges_[at].bounds.store(uint64_t{first} << 32 | last, std::memory_order_release);
  ranges_[at].kind.store(kind, std::memory_order_release);
  count_.store(count() + 1, std::memory_order_release);
  end_change();
}

bool PolicyRanges::remove(PageIndex first) {
  unsigned at = 0;
  while (at < count() && ranges_[at].first() != first) at++;
  if (at == count()) return false;
  begin_change();
  for (; at + 1 < count(); at++) copy(at, at + 1);
  count_.store(count() - 1, std::memory_order_release);
  end_change();
  return true;
}

bool PolicyRanges::overlaps(PageIndex first, PageIndex last) const {
  for (unsigned i = 0; i < count(); i++) {
    if (ranges_[i].first() <= last && first <= ranges_[i].last()) return true;
  }
  return false;
}

PolicySet::PolicySet(PolicyKind others, PageTable& table) : table_(table), ranges_(others) {
  policies_[static_cast<size_t>(others)].store(new_policy(others, table));
}

PolicySet::~PolicySet() {
  for (auto& p : policies_) delete p.load();
}

Status PolicySet::add(PageIndex first, uint64_t pages, PolicyKind kind) {
  if (pages == 0 || first + pages > table_.pages())
    return Status::error(EINVAL, "a region of {} pages does not fit far space", pages);
  auto last = static_cast<PageIndex>(first + pages - 1);
  if (ranges_.overlaps(first, last)) return Status::error(EINVAL, "a region must not overlap another one");
  if (ranges_.count() == PolicyRanges::kMax) {
    return Status::error(ENOSPC, "{} regions exist already, the maximum; free one first", PolicyRanges::kMax);
  }
  if (!policy(kind)) {
    policies_[static_cast<size_t>(kind)].store(new_policy(kind, table_), std::memory_order_release);
    several_.store(true, std::memory_order_release);
  }
  ranges_.add(first, last, kind);
  return {};
}

void PolicySet::remove(PageIndex first) { ranges_.remove(first); }

void PolicySet::insert(unsigned shard, PageIndex page) { policy(ranges_.find(page))->insert(shard, page); }

size_t PolicySet::select(unsigned evictor, std::span<PageIndex> out) {
  if (!several_.load(std::memory_order_acquire)) return policy(ranges_.others())->select(evictor, out);
  size_t count = select_by_share(evictor, out);
  // Policies that found fewer pages than their share leave the rest to the others.
  for (size_t i = 0; i < kPolicyKinds && count < out.size(); i++) {
    if (Policy* p = policies_[i].load(std::memory_order_acquire)) count += p->select(evictor, out.subspan(count));
  }
  return count;
}

size_t PolicySet::select_by_share(unsigned evictor, std::span<PageIndex> out) {
  uint64_t sizes[kPolicyKinds] = {};
  size_t shares[kPolicyKinds], count = 0;
  for (size_t i = 0; i < kPolicyKinds; i++) {
    if (Policy* p = policies_[i].load(std::memory_order_acquire)) sizes[i] = p->queued();
  }
  share_out(out.size(), turns_[evictor % kMaxEvictors]++, sizes, shares);
  for (size_t i = 0; i < kPolicyKinds; i++) {
    if (shares[i] > 0) count += policies_[i].load()->select(evictor, out.subspan(count, shares[i]));
  }
  return count;
}

void PolicySet::set_elsewhere(uint64_t pages) {
  for (const auto& p : policies_) {
    if (Policy* policy = p.load()) policy->set_elsewhere(pages);
  }
}

uint64_t PolicySet::sum(uint64_t (Policy::*pages)() const) const {
  uint64_t sum = 0;
  for (const auto& p : policies_) {
    if (Policy* policy = p.load()) sum += (policy->*pages)();
  }
  return sum;
}

}  // namespace farside::pager
