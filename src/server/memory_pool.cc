#include "server/memory_pool.h"

#include <cstring>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "wire/auth.h"

namespace farside::server {
namespace {

Status no_file(int code) {
  return Status::error(-code, "the server cannot create a memory file; raise its limit on open files (ulimit -n)");
}

}  // namespace

Result<Region*> MemoryPool::create(uint64_t bytes, std::shared_ptr<Tenant> tenant) {
  Account* account = tenant ? &tenant->account : &account_;
  if (account->is_exhausted()) return full(account_.is_exhausted() ? &account_ : account, tenant.get());
  MemoryFile memory;
  if (int r = memory.create(bytes); r < 0) return no_file(r);
  std::lock_guard hold(mutex_);
  auto region = std::make_unique<Region>(new_name(), bytes, std::move(memory), quota_, account);
  region->tenant_ = std::move(tenant);
  return add(std::move(region));
}

Result<Region*> MemoryPool::attach(uint64_t id, const uint8_t* secret) {
  std::lock_guard hold(mutex_);
  Region* region = find(id, secret);
  if (!region) return Status::error(ENOENT, "no such region; its last connection was closed, or the server restarted");
  region->connections_++;
  return region;
}

Result<Region*> MemoryPool::snapshot(uint64_t id, const uint8_t* secret) {
  std::lock_guard hold(mutex_);
  Region* base = find(id, secret);
  if (!base) return Status::error(ENOENT, "no such region; its last connection was closed, or the server restarted");
  if (base->account_->is_exhausted())
    return full(account_.is_exhausted() ? &account_ : base->account_, base->tenant_.get());
  MemoryFile memory;
  if (int r = memory.create(base->bytes()); r < 0) return no_file(r);
  std::unique_lock family(base->family_->lock);
  if (base->given_up_) return Status::error(EIO, "the snapshot of this region was given up for lack of memory");
  auto region = std::make_unique<Region>(new_name(), std::move(memory), base);
  region->tenant_ = base->tenant_;
  return add(std::move(region));
}

std::optional<std::array<uint8_t, wire::kSecretBytes>> MemoryPool::secret_of(uint64_t id) {
  std::lock_guard hold(mutex_);
  auto it = regions_.find(id);
  if (it == regions_.end()) return {};
  return std::to_array(it->second->name().secret);
}

void MemoryPool::release(Region* region, bool broken) {
  Removed removed;
  std::lock_guard hold(mutex_);
  if (!broken || region->connections_ > 1 || grace_ns_ == 0) return release_locked(region, &removed);
  removed.shares.push_back(region->revoke_share());
  abandoned_.push_back({region, now_ns() + grace_ns_});
  abandoned_count_ = abandoned_.size();
}

void MemoryPool::release_locked(Region* region, Removed* removed) {
  if (--region->connections_ > 0) return;
  removed->shares.push_back(region->revoke_share());
  const Region::Client& c = region->client;
  removed->departures.push_back({c.peer, region->name().id, region->reserved_bytes(), region->stored_bytes(),
                                 c.requests, c.received, c.sent, now_ns() - c.since_ns});
  auto family_alive = region->family_;
  std::unique_lock family(family_alive->lock);
  reap(region, removed);
}

void MemoryPool::free_abandoned(uint64_t now) {
  Removed removed;
  std::lock_guard hold(mutex_);
  std::erase_if(abandoned_, [&](const Abandoned& a) {
    if (now < a.until) return false;
    release_locked(a.region, &removed);
    return true;
  });
  abandoned_count_ = abandoned_.size();
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
  std::lock_guard hold(mutex_);
  std::erase_if(region->fences_, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Fence> fence = region->fences_[channel].lock();
  if (!fence) region->fences_[channel] = fence = std::make_shared<Fence>();
  return fence;
}

Result<uint64_t> MemoryPool::grow(Region* region, uint64_t bytes, uint64_t sequence) {
  std::lock_guard hold(mutex_);
  uint64_t reserved = region->reserved_;
  if (sequence <= region->last_sequence_) return reserved;
  if (reserved + bytes > align_up(region->bytes(), wire::kSlabBytes)) {
    return Status::error(EINVAL, "the reservation would be larger than the region");
  }
  region->settle();  // a client that maps its region may have stored more than it reserved
  const Account* without_room = region->account_->try_charge(bytes);
  if (without_room) {
    settle_all();
    without_room = region->account_->try_charge(bytes);
  }
  if (without_room) return full(without_room, region->tenant_.get());
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
  return Status::error(ENOMEM, "the server is full: {} of {} reserved, {} to describe it", format_size(account->data()),
                       format_size(account->capacity()), format_size(account->overhead()));
}

uint64_t MemoryPool::shrink(Region* region, uint64_t bytes, uint64_t sequence) {
  Removed removed;
  std::lock_guard hold(mutex_);
  uint64_t reserved = region->reserved_;
  if (sequence <= region->last_sequence_) return reserved;
  region->last_sequence_ = sequence;
  region->reserved_ = reserved - std::min(reserved, bytes);
  if (region->share_.slabs() > region->reserved_ / wire::kSlabBytes) removed.shares.push_back(region->revoke_share());
  region->settle();
  return region->reserved_;
}

MemoryPool::Usage MemoryPool::usage() {
  std::lock_guard hold(mutex_);
  settle_all();
  Usage usage = {account_.capacity(), account_.data(), account_.overhead(), 0, regions_.size(), 0};
  for (auto& [id, region] : regions_) {
    usage.stored += region->stored_bytes();
    usage.snapshots += region->is_overlay();
  }
  return usage;
}

void MemoryPool::set_client(Region* region, const std::string& peer, const std::string& source) {
  std::lock_guard hold(mutex_);
  region->client.peer = peer;
  region->client.source = source;
}

std::vector<MemoryPool::RegionUsage> MemoryPool::regions() {
  std::lock_guard hold(mutex_);
  std::vector<RegionUsage> all;
  for (auto& [id, region] : regions_) {
    all.push_back(
        {id, region->client.source, region->reserved_bytes(), region->stored_bytes(), region->client.requests});
  }
  return all;
}

Region* MemoryPool::find(uint64_t id, const uint8_t* secret) {
  auto it = regions_.find(id);
  if (it == regions_.end()) return nullptr;
  return wire::same_secret(it->second->name().secret, secret, wire::kSecretBytes) ? it->second.get() : nullptr;
}

Region* MemoryPool::add(std::unique_ptr<Region> region) {
  Region* raw = region.get();
  raw->connections_ = 1;
  regions_.emplace(raw->name().id, std::move(region));
  return raw;
}

// Removes a region without connections, unless it has several overlays, and then its base under the same condition. The
// mutex and the family lock are held.
void MemoryPool::reap(Region* region, Removed* removed) {
  while (region && region->connections_ == 0) {
    if (region->overlays_.size() > 1) return region->settle();
    Region* base = region->base_;
    if (region->overlays_.size() == 1) region->overlays_[0]->replace_base();
    else region->detach_from_base();
    auto node = regions_.extract(region->name().id);
    removed->regions.push_back(std::move(node.mapped()));
    region = base;
  }
}

// Makes all charges exact; between exact counts they are upper bounds.
void MemoryPool::settle_all() {
  for (auto& [id, region] : regions_) region->settle();
}

Region::Name MemoryPool::new_name() {
  Region::Name name = {++last_id_, {}};
  os::fill_random(name.secret, sizeof name.secret);
  return name;
}

}  // namespace farside::server
