#include "fiber/timers.h"

#include <utility>

namespace farside::fibers {
namespace {

bool is_before(const Fiber* a, const Fiber* b) {
  return a->deadline != b->deadline ? a->deadline < b->deadline : a->turn < b->turn;
}

// Merges two heaps, of which either may be empty.
Fiber* meld(Fiber* a, Fiber* b) {
  if (!a || !b) return a ? a : b;
  if (is_before(b, a)) std::swap(a, b);
  b->sibling = a->child;
  a->child = b;
  return a;
}

// Merges a list of siblings into one heap: first in pairs, then the pairs from the last to the first.
Fiber* meld_siblings(Fiber* first) {
  Fiber* pairs = nullptr;
  while (first) {
    Fiber* a = first;
    Fiber* b = a->sibling;
    first = b ? b->sibling : nullptr;
    a->sibling = nullptr;
    if (b) b->sibling = nullptr;
    Fiber* pair = meld(a, b);
    pair->sibling = pairs;
    pairs = pair;
  }
  Fiber* root = nullptr;
  while (pairs) {
    Fiber* pair = std::exchange(pairs, pairs->sibling);
    pair->sibling = nullptr;
    root = meld(root, pair);
  }
  return root;
}

}  // namespace

bool Timers::insert(Fiber* fiber) {
  LockGuard guard(lock_);
  fiber->turn = turns_++;
  fiber->child = fiber->sibling = nullptr;
  root_ = meld(root_, fiber);
  earliest_.store(root_->deadline);
  return root_ == fiber;
}

Fiber* Timers::take_due(uint64_t now) {
  LockGuard guard(lock_);
  if (!root_ || root_->deadline > now) return nullptr;
  Fiber* due = root_;
  root_ = meld_siblings(due->child);
  earliest_.store(root_ ? root_->deadline : kNever);
  return due;
}

}  // namespace farside::fibers
