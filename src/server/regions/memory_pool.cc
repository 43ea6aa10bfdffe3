#include "server/regions/memory_pool.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/size.h"
#include "wire/auth.h"

namespace farside::server {
namespace {

Status no_file(int code) {
  return Status::error(-code, "the server cannot create a memory file; raise its limit on {}",
                       code == -EFBIG    ? "sizes of files (ulimit -f)"
                       : code == -ENOMEM ? "addresses (ulimit -v)"
                                         : "open files (ulimit -n)");
}

}  // namespace

Result<Region*> MemoryPool::create(uint64_t bytes, std::shared_ptr<Tenant> tenant) {
  Account* account = tenant ? &tenant->account : &account_;
  if (account->is_exhausted()) return full(account_.is_exhausted() ? &account_ : account, tenant.get());
  auto family = std::make_shared<Region::Family>(quota_, std::move(tenant), &account_, &disposal_, overflow_.get());
  MemoryFile memory;
  if (int r = memory.create(bytes, compression_, overflow_.get()); r < 0) return no_file(r);
  LockGuard hold(mutex_);
  return add(std::make_unique<Region>(new_name(), bytes, std::move(memory), std::move(family)));
}

Result<Region*> MemoryPool::attach(uint64_t id, const uint8_t* secret) {
  LockGuard hold(mutex_);
  Region* region = find(id, secret);
  if (!region) return Status::error(ENOENT, "no such region; its last connection was closed, or the server restarted");
  region->connections_++;
  return region;
}

Result<Region*> MemoryPool::snapshot(uint64_t id, const uint8_t* secret) {
  const Status unknown =
      Status::error(ENOENT, "no such region; its last connection was closed, or the server restarted");
  uint64_t bytes;
  auto family = family_of(id, secret, &bytes);
  if (!family) return unknown;
  if (family->account.is_exhausted())
    return full(account_.is_exhausted() ? &account_ : &family->account, family->tenant.get());
  MemoryFile memory;
  if (int r = memory.create(bytes, Compression::kOff, overflow_.get()); r < 0) return no_file(r);
  auto own = std::make_unique<PageBitmap>(bytes / kPageSize);
  std::unique_lock content(family->lock);
  LockGuard hold(mutex_);
  Region* base = find(id, secret);
  if (!base) return unknown;
  if (base->given_up_) return Status::error(EIO, "the snapshot of this region was given up for lack of memory");
  if (base->chain_length() >= Region::kMaxChain)
    return Status::error(EMLINK, "{} processes have forked one from the other; a server keeps no longer chain",
                         Region::kMaxChain);
  return add(std::make_unique<Region>(new_name(), std::move(memory), std::move(own), base));
}

std::shared_ptr<Region::Family> MemoryPool::family_of(uint64_t id, const uint8_t* secret, uint64_t* bytes) {
  LockGuard hold(mutex_);
  Region* region = find(id, secret);
  if (!region) return nullptr;
  *bytes = region->bytes();
  return region->family_;
}

std::optional<std::array<uint8_t, wire::kSecretBytes>> MemoryPool::secret_of(uint64_t id) {
  LockGuard hold(mutex_);
  auto it = regions_.find(id);
  if (it == regions_.end()) return {};
  return std::to_array(it->second->name().secret);
}

void MemoryPool::release(Region* region, bool broken) {
  RegionShare::Remains share;
  {
    LockGuard hold(mutex_);
    if (broken && abandon(region)) {
      share = region->revoke_share();
      return;
    }
  }
  leave(region);
  tidy();
}

// The grace time begins, again if the region's connections broke and came back a short while ago. False: the region has
// other connections, or there is no such time.
bool MemoryPool::abandon(Region* region) {
  auto of_region = [region](const Abandoned& a) { return a.region == region; };
  auto entry = std::find_if(abandoned_.begin(), abandoned_.end(), of_region);
  bool is_repeated = entry != abandoned_.end();
  if (grace_ns_ == 0 || region->connections_ != (is_repeated ? 2 : 1)) return false;
  if (is_repeated) region->connections_--;
  else entry = abandoned_.insert(entry, {region, 0});
  entry->until = now_ns() + grace_ns_;
  abandoned_count_ = abandoned_.size();
  return true;
}

// One connection fewer.
void MemoryPool::leave(Region* region) {
  Removed removed;
  auto family = region->family_;
  std::unique_lock content(family->lock);
  LockGuard hold(mutex_);
  if (--region->connections_ > 0) return;
  removed.shares.push_back(region->revoke_share());
  const Region::Client& c = region->client;
  removed.departures.push_back({c.peer, region->name().id, region->reserved_bytes(), region->stored_bytes(), c.requests,
                                c.received, c.sent, now_ns() - c.since_ns});
  reap(region, &removed);
}

void MemoryPool::free_abandoned(uint64_t now) {
  std::vector<Region*> due;
  {
    LockGuard hold(mutex_);
    std::erase_if(abandoned_, [&](const Abandoned& a) {
      if (now >= a.until) due.push_back(a.region);
      return now >= a.until;
    });
    abandoned_count_ = abandoned_.size();
  }
  for (Region* region : due) leave(region);
  tidy();
}

bool MemoryPool::tidy() {
  if (merging_count_ > 0) merge_some();
  else disposal_.free_some();
  return !is_tidy();
}

// One piece for the base that waits longest; then it waits behind the others.
void MemoryPool::merge_some() {
  Removed removed;
  std::shared_ptr<Region::Family> family;
  uint64_t id;
  {
    LockGuard hold(mutex_);
    if (merging_.empty()) return;
    id = merging_.front();
    merging_.pop_front();
    merging_.push_back(id);
    family = regions_.at(id)->family_;
  }
  std::unique_lock content(family->lock);
  Region* base;
  {
    LockGuard hold(mutex_);
    auto found = regions_.find(id);
    if (found == regions_.end() || !found->second->is_merging_) return;  // it ended, or another thread was faster
    base = found->second.get();
  }
  WorkPiece piece(&family->visits);
  int r = base->overlays_.begin()->second->merge_into_base(&piece);
  if (r != kMore) end_merge(base, r == 0, &removed);
}

// The family lock is held. After an error the base stays as it is, until its overlay ends.
void MemoryPool::end_merge(Region* base, bool merged, Removed* removed) {
  LockGuard hold(mutex_);
  base->is_merging_ = false;
  std::erase(merging_, base->name().id);
  merging_count_ = merging_.size();
  if (!merged) return;
  Region* heir = base->overlays_.begin()->second;
  extract(base, removed);
  heir->replace_base();
  snapshots_--;  // the base, or its overlay, which is a root now
}

void MemoryPool::advance_epochs() {
  LockGuard hold(mutex_);
  for (const auto& [id, region] : regions_) {
    if (PackedFile* file = region->packed()) file->advance_epoch();
  }
}

void MemoryPool::begin_pass() {
  LockGuard hold(mutex_);
  for (const auto& [id, region] : regions_) {
    packing_.push_back(id);
    region->memory_.settle_ram();
  }
  if (!overflow_) return;
  overflow_->begin_pass();
  account_.set_capacity(overflow_->capacity());
}

Packer::Progress MemoryPool::pack_some() {
  if (packing_.empty()) return {};
  Packer::Progress step;
  use_packed(packing_.back(), [&](PackedFile& file) { step = file.step(); });
  if (!step.more) packing_.pop_back();
  return {!packing_.empty(), step.packed};
}

// Calls use() unless the region has ended, or is not compressed.
template <typename Use>
void MemoryPool::use_packed(uint64_t id, Use use) {
  std::shared_ptr<Region::Family> family;
  {
    LockGuard hold(mutex_);
    auto found = regions_.find(id);
    if (found == regions_.end()) return;
    family = found->second->family_;
  }
  std::shared_lock content(family->lock);
  PackedFile* file = nullptr;
  {
    LockGuard hold(mutex_);
    auto found = regions_.find(id);
    if (found != regions_.end()) file = found->second->packed();
  }
  if (file) use(*file);
}

MemoryPool::Removed::~Removed() {
  for (const Departure& d : departures) {
    log_with(LogLevel::kInfo,
             {{"peer", d.peer},
              {"region", d.region},
              {"reserved_bytes", d.reserved},
              {"stored_bytes", d.stored},
              {"requests", d.requests},
              {"received_bytes", d.received},
              {"sent_bytes", d.sent},
              {"duration_ms", d.ns / 1'000'000}},
             "client disconnected");
  }
}

std::shared_ptr<Fence> MemoryPool::fence(Region* region, uint64_t channel) {
  LockGuard hold(mutex_);
  std::erase_if(region->fences_, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Fence> fence = region->fences_[channel].lock();
  if (!fence) region->fences_[channel] = fence = std::make_shared<Fence>();
  return fence;
}

Result<uint64_t> MemoryPool::grow(Region* region, uint64_t bytes, uint64_t sequence) {
  LockGuard hold(mutex_);
  uint64_t reserved = region->reserved_;
  if (sequence <= region->last_sequence_) return reserved;
  if (reserved + bytes > align_up(region->bytes(), wire::kSlabBytes)) {
    return Status::error(EINVAL, "the reservation would be larger than the region");
  }
  settle(region);  // a client that maps its region may have stored more than it reserved
  const Account* without_room = region->account_->try_charge(bytes);
  if (without_room) {
    settle_some();
    without_room = region->account_->try_charge(bytes);
  }
  if (without_room) return full(without_room, region->tenant().get());
  region->last_sequence_ = sequence;
  region->reserved_ = reserved + bytes;
  if (region->is_overlay()) region->account_->correct(bytes, 0);  // overlays are charged for what they store
  else region->charged_ += bytes;
  return reserved + bytes;
}

Status MemoryPool::full(const Account* account, const Tenant* tenant) const {
  if (tenant && account == &tenant->account) {
    return Status::error(ENOMEM, "the quota of the token {} ({}) is exhausted", tenant->name,
                         format_size(account->capacity()));
  }
  if (account != &account_) {
    return Status::error(ENOMEM, "this client's quota of {} is exhausted; it includes forked processes",
                         format_size(account->capacity()));
  }
  if (account_.capacity() == 0)
    return Status::error(ENOMEM, "the server is full: it is a pool's controller and lends no memory; use pool://");
  return Status::error(ENOMEM, "the server is full: {} of {} reserved, {} to describe it", format_size(account->data()),
                       format_size(account->capacity()), format_size(account->overhead()));
}

uint64_t MemoryPool::shrink(Region* region, uint64_t bytes, uint64_t sequence) {
  Removed removed;
  LockGuard hold(mutex_);
  uint64_t reserved = region->reserved_;
  if (sequence <= region->last_sequence_) return reserved;
  region->last_sequence_ = sequence;
  region->reserved_ = reserved - std::min(reserved, bytes);
  if (region->share_.slabs() > region->reserved_ / wire::kSlabBytes) removed.shares.push_back(region->revoke_share());
  settle(region);
  return region->reserved_;
}

MemoryPool::Usage MemoryPool::usage() {
  LockGuard hold(mutex_);
  settle_some();
  return {account_.capacity(),
          account_.data(),
          account_.overhead(),
          stored_.bytes,
          regions_.size(),
          snapshots_,
          stored_.packed,
          stored_.zstd,
          stored_.used,
          stored_.overflow,
          overflow_ ? overflow_->file()->bytes() : 0};
}

void MemoryPool::set_client(Region* region, const std::string& peer, const std::string& source) {
  LockGuard hold(mutex_);
  region->client.peer = peer;
  region->client.source = source;
}

std::vector<MemoryPool::RegionUsage> MemoryPool::regions() {
  LockGuard hold(mutex_);
  std::vector<RegionUsage> all;
  for (auto& [id, region] : regions_) {
    all.push_back(
        {id, region->client.source, region->reserved_bytes(), region->stored_bytes(), region->client.requests});
  }
  return all;
}

// Not a base that merges with its overlay: its content is the overlay's already.
Region* MemoryPool::find(uint64_t id, const uint8_t* secret) {
  auto it = regions_.find(id);
  if (it == regions_.end() || it->second->is_merging_) return nullptr;
  return wire::same_secret(it->second->name().secret, secret, wire::kSecretBytes) ? it->second.get() : nullptr;
}

Region* MemoryPool::add(std::unique_ptr<Region> region) {
  Region* raw = region.get();
  raw->connections_ = 1;
  snapshots_ += raw->is_overlay();
  regions_.emplace(raw->name().id, std::move(region));
  return raw;
}

// Removes a region without connections, and then its base under the same condition. One with a single overlay merges
// with it first; one with several stays. The mutex and the family lock are held.
void MemoryPool::reap(Region* region, Removed* removed) {
  while (region && region->connections_ == 0) {
    if (region->overlays_.size() > 1) return settle(region);
    if (region->overlays_.size() == 1) {
      if (!std::exchange(region->is_merging_, true)) merging_.push_back(region->name().id);
      merging_count_ = merging_.size();
      return settle(region);
    }
    Region* base = region->base_;
    snapshots_ -= region->is_overlay();
    region->detach_from_base();
    if (region->is_merging_) std::erase(merging_, region->name().id);
    merging_count_ = merging_.size();
    extract(region, removed);
    region = base;
  }
}

void MemoryPool::extract(Region* region, Removed* removed) {
  stored_.replace(region->last_stored_, {});
  auto node = regions_.extract(region->name().id);
  removed->regions.push_back(std::move(node.mapped()));
}

// Makes charges exact, of so many regions that others do not wait long; between exact counts charges are upper bounds.
void MemoryPool::settle_some() {
  auto next = regions_.upper_bound(settled_up_to_);
  for (size_t i = 0; i < std::min<size_t>(kMaxSettled, regions_.size()); i++, ++next) {
    if (next == regions_.end()) next = regions_.begin();
    settle(next->second.get());
    settled_up_to_ = next->first;
  }
}

void MemoryPool::settle(Region* region) {
  region->settle();
  MemoryFile::Stored now = region->stored();
  stored_.replace(std::exchange(region->last_stored_, now), now);
}

Region::Name MemoryPool::new_name() {
  Region::Name name = {++last_id_, {}};
  fill_random(name.secret, sizeof name.secret);
  return name;
}

}  // namespace farside::server
