#include "pager/space/far_charge.h"

#include <algorithm>

#include "base/bits.h"
#include "base/log.h"

namespace farside::pager {

Status FarCharge::charge(uint64_t offset, size_t bytes) {
  LockGuard guard(mutex_);
  if (charged_ + bytes > reserved_) {
    uint64_t missing = align_up(charged_ + bytes - reserved_, remote::kSlabBytes);
    uint64_t more = missing + ahead();
    Status grown = store_->grow(more);
    if (grown.ok()) missing = more;
    else grown = store_->grow(missing);
    if (!grown.ok()) return grown;
    reserved_ += missing;
  }
  Status claimed = store_->claim(offset, bytes);
  if (claimed.ok()) charged_ += bytes;
  FARSIDE_CHECK(charged_ <= reserved_);
  return claimed;
}

// A quarter of what is used: large programs seldom wait for the server, and small ones do not keep others out.
uint64_t FarCharge::ahead() const { return align_down(std::min(charged_ / 4, kMaxAhead), remote::kSlabBytes); }

void FarCharge::uncharge(uint64_t offset, size_t bytes) {
  LockGuard guard(mutex_);
  FARSIDE_CHECK(charged_ >= bytes && reserved_ >= charged_);
  store_->unclaim(offset, bytes);
  charged_ -= bytes;
  uint64_t spare = reserved_ - charged_, kept = ahead() + remote::kSlabBytes;
  if (spare < 2 * kept) return;
  uint64_t back = align_down(spare - kept, remote::kSlabBytes);
  store_->shrink(back);
  reserved_ -= back;
  FARSIDE_CHECK(reserved_ >= charged_);
}

}  // namespace farside::pager
