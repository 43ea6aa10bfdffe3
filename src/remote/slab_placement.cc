#include "remote/slab_placement.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/log.h"
#include "base/size.h"

namespace farside::remote {
namespace {

constexpr uint64_t kSlabsAhead = 4;  // reserved together when a claim needs a slab and none is reserved

}  // namespace

// A server that leaves is empty as soon as its slabs in use are.
void SlabPlacement::return_spare(ServerSet servers) {
  for_each(servers & servers_.usable(), [&](unsigned s) {
    lock_.assert_held();
    if (spare_[s] > 0) servers_[s].shrink(spare_[s] * kSlabBytes);
    spare_[s] = 0;
  });
}

void SlabPlacement::drain(ServerSet servers) {
  return_spare(servers & ~servers_.draining());
  servers_.set_draining(servers);
  for_each(servers & servers_.usable(), [&](unsigned s) {
    lock_.assert_held();
    if (!has_slab(s) && servers_.staying() != 0) servers_.leave(s);
  });
}

ServerSet SlabPlacement::retire_lost() {
  ServerSet lost = servers_.lost() & ~servers_.retired(), named = 0;
  SlabTable& table = servers_.table();
  for (uint64_t slab = 0; slab < table.end(); slab++) {
    ServerSet holders = table.holders(slab), left = holders & ~lost;
    if (left != 0 && left != holders) table.place(slab, left);
    named |= table.holders(slab);
  }
  lost = servers_.retire(lost & ~named);
  closed_ &= ~lost;
  for_each(lost, [&](unsigned s) {
    lock_.assert_held();
    spare_[s] = 0;
  });
  return lost;
}

bool SlabPlacement::has_slab(unsigned server) const {
  const SlabTable& table = servers_.table();
  for (uint64_t slab = 0; slab < table.end(); slab++) {
    if (table.servers(slab).all() & only(server)) return true;
  }
  return false;
}

void SlabPlacement::close_to_new_slabs(ServerSet servers) {
  return_spare(servers & ~closed_);
  closed_ = servers;
  bool few = static_cast<unsigned>(std::popcount(open())) < servers_.replicas();
  if (few && !warned_few_ && servers_.count() >= servers_.replicas()) {
    log(LogLevel::kWarning,
        "only {} memory servers accept new slabs: new data has fewer copies than --replicas {} requests",
        std::popcount(open()), servers_.replicas());
  }
  warned_few_ = few;
}

// Each round starts from the free memory that the servers report. A round fails when a server refuses, because another
// client was faster or a quota is exhausted, or is lost. The next round does without this server.
Status SlabPlacement::reserve(uint64_t slabs) {
  ServerSet refusing = 0;
  Status refused = Status::error(
      ENOMEM, "the memory servers are full: {} more, in slabs of 16 MiB, require {} servers with free memory{}",
      format_size(slabs * kSlabBytes), std::min<unsigned>(servers_.replicas(), servers_.count()),
      servers_.replicas() > 1 && servers_.zones(open()) < static_cast<unsigned>(std::popcount(open()))
          ? " in different zones"
          : "");
  for (unsigned round = 0; round <= kMaxServers && open() != 0; round++) {
    Slabs room, taken = {};
    read_room(room);
    for_each(refusing, [&](unsigned s) { room[s] = 0; });
    bool planned = true;
    for (uint64_t i = 0; i < slabs && planned; i++) {
      ServerSet chosen = take_most(room);
      planned = chosen != 0;
      for_each(chosen, [&](unsigned s) { taken[s]++; });
    }
    if (!planned) return refused;
    ServerSet refusing_now = 0;
    Status grown = grow_each(taken, &refusing_now);
    if (grown.ok()) return {};
    if (refusing_now != 0) refused = grown;
    refusing |= refusing_now;
  }
  return refused;
}

void SlabPlacement::read_room(Slabs room) {
  std::fill_n(room, kMaxServers, 0);
  for_each(open(), [&](unsigned s) {
    Result<uint64_t> free = servers_[s].free_bytes();
    if (free.ok()) room[s] = *free / kSlabBytes;
    else servers_.lose(s, "no reply");
  });
}

// Chooses the servers of one slab: as many as there are replicas, or all that are left, in different zones as far as
// there are so many, and of these the ones with the most room. 0 when one of them has no room.
ServerSet SlabPlacement::take_most(Slabs room) const {
  ServerSet from = open(), chosen = 0;
  auto copies = std::min<unsigned>(servers_.replicas(), static_cast<unsigned>(std::popcount(from)));
  for (unsigned i = 0; i < copies; i++) {
    ServerSet apart = from & ~servers_.in_zones_of(chosen);
    unsigned best = roomiest(apart != 0 ? apart : from & ~chosen, room);
    if (best == kMaxServers) return 0;
    chosen |= only(best);
  }
  for_each(chosen, [&](unsigned s) { room[s]--; });
  return chosen;
}

// With several copies, the room of zones comes first: each copy needs another one. kMaxServers: none has room.
unsigned SlabPlacement::roomiest(ServerSet servers, const Slabs room) const {
  auto room_of_zone = [&](unsigned server) {
    uint64_t sum = 0;
    for_each(servers & servers_.in_zones_of(only(server)), [&](unsigned s) { sum += room[s]; });
    return servers_.replicas() > 1 ? sum : 0;
  };
  unsigned best = kMaxServers;
  std::pair<uint64_t, uint64_t> most;
  for_each(servers, [&](unsigned s) {
    std::pair<uint64_t, uint64_t> rooms = {room_of_zone(s), room[s]};
    if (room[s] == 0 || (best != kMaxServers && rooms <= most)) return;
    best = s;
    most = rooms;
  });
  return best;
}

// All or nothing.
Status SlabPlacement::grow_each(const Slabs taken, ServerSet* refusing) {
  for (unsigned s = 0; s < servers_.count(); s++) {
    Status grown = taken[s] ? servers_[s].grow(taken[s] * kSlabBytes) : Status();
    if (grown.ok()) continue;
    if (grown.code() == ECONNRESET) servers_.lose(s, "no reply");
    else *refusing |= only(s);
    for (unsigned t = 0; t < s; t++) {
      if (taken[t]) servers_[t].shrink(taken[t] * kSlabBytes);
    }
    return grown;
  }
  for (unsigned s = 0; s < servers_.count(); s++) spare_[s] += taken[s];
  return {};
}

void SlabPlacement::shrink(uint64_t bytes) {
  Slabs given = {};
  for (uint64_t i = 0; i < bytes / kSlabBytes; i++) {
    for_each(take_most(spare_), [&](unsigned s) { given[s]++; });
  }
  for_each(servers_.usable(), [&](unsigned s) {
    if (given[s]) servers_[s].shrink(given[s] * kSlabBytes);
  });
}

Status SlabPlacement::claim(uint64_t far, uint64_t bytes) {
  uint64_t done = 0;
  Status status;
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t part) {
    lock_.assert_held();
    if (status.ok() && servers_.table().holders(slab) == 0) status = place(slab);
    if (!status.ok()) return;
    servers_.table().use(slab, part);
    done += part;
  });
  if (!status.ok()) unclaim(far, done);
  return status;
}

void SlabPlacement::unclaim(uint64_t far, uint64_t bytes) {
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t part) {
    servers_.table().unuse(slab, part);
    lock_.assert_held();
    if (servers_.table().used(slab) == 0 && slab != repaired_slab_) release(slab);
  });
}

// The slab was discarded, and no byte of it is in use.
void SlabPlacement::release(uint64_t slab) {
  give_back(servers_.table().holders(slab));
  servers_.table().place(slab, 0);
}

void SlabPlacement::give_back(ServerSet servers) {
  for_each(servers & servers_.usable(), [&](unsigned s) {
    lock_.assert_held();
    if ((open() & only(s)) == 0) servers_[s].shrink(kSlabBytes);
    else spare_[s]++;
  });
}

bool SlabPlacement::begin_repair(uint64_t* next, SlabRepair* repair) {
  uint64_t slabs = servers_.table().end(), slab = 0, checked = 0;
  Slabs room;
  bool knows_room = false;
  repair->server = kMaxServers;
  for (; checked < slabs && repair->server == kMaxServers; checked++) {
    slab = (*next + checked) % slabs;
    if (!servers_.is_degraded(slab)) continue;
    if (!knows_room) read_room(room);
    knows_room = true;
    repair->server = server_for_copy(slab, room);
  }
  if (repair->server == kMaxServers || !take_one(repair->server)) return false;
  *next = slab + 1;
  repair->slab = repaired_slab_ = slab;
  servers_.table().place(slab, servers_.table().holders(slab), only(repair->server));
  return true;
}

// The one with the most room in a zone without a copy that stays. One in another zone only for a copy that is lost, or
// where no other zone takes new slabs. kMaxServers: there is none, or no holder is left to copy from.
unsigned SlabPlacement::server_for_copy(uint64_t slab, const Slabs room) const {
  ServerSet holders = servers_.table().holders(slab), left = holders & servers_.usable();
  ServerSet stay = left & servers_.staying(), others = open() & ~holders, apart = open() & ~servers_.in_zones_of(stay);
  if (left == 0) return kMaxServers;
  Slabs free;
  for (unsigned s = 0; s < kMaxServers; s++) free[s] = room[s] + spare_[s];
  unsigned best = roomiest(others & apart, free);
  auto lacks = [&](ServerSet copies) { return static_cast<unsigned>(std::popcount(copies)) < servers_.replicas(); };
  bool may_be_beside = lacks(left) || (lacks(stay) && apart == 0);
  return best == kMaxServers && may_be_beside ? roomiest(others, free) : best;
}

// Takes one slab of a server, reserved or not.
bool SlabPlacement::take_one(unsigned server) {
  if (spare_[server] > 0) {
    spare_[server]--;
    return true;
  }
  Status grown = servers_[server].grow(kSlabBytes);
  if (grown.code() == ECONNRESET) servers_.lose(server, "no reply");
  return grown.ok();
}

// Holders that are lost are left out from now on: they are never used again.
ServerSet SlabPlacement::conclude_repair(const SlabRepair& repair, bool copied) {
  ServerSet holders = servers_.table().holders(repair.slab), added = only(repair.server);
  if (!copied || (servers_.usable() & added) == 0 || !servers_.is_degraded(repair.slab)) {
    servers_.table().place(repair.slab, holders);
    return added;
  }
  holders = (holders & servers_.usable()) | added;
  ServerSet replaced = replaced_by(repair.server, holders);
  servers_.table().place(repair.slab, holders & ~replaced);
  return replaced;
}

// One that drains, else one that has a copy in the zone of another holder; 0 if no copy is one too many.
ServerSet SlabPlacement::replaced_by(unsigned server, ServerSet holders) const {
  if (static_cast<unsigned>(std::popcount(holders)) <= servers_.replicas()) return 0;
  ServerSet replaced = holders & servers_.draining();
  if (replaced == 0) {
    for_each(holders & ~only(server), [&](unsigned s) {
      if (servers_.in_zones_of(only(s)) & holders & ~only(s)) replaced |= only(s);
    });
  }
  return replaced & -replaced;
}

void SlabPlacement::end_repair(const SlabRepair& repair, ServerSet removed) {
  give_back(removed);
  repaired_slab_ = kNone;
  if (servers_.table().used(repair.slab) == 0) release(repair.slab);
}

Status SlabPlacement::place(uint64_t slab) {
  if (place_on_reserve(slab) != 0) return {};
  Status more = reserve(kSlabsAhead);
  if (!more.ok()) more = reserve(1);
  if (more.ok() && place_on_reserve(slab) == 0) more = Status::error(ENOMEM, "the memory servers are full");
  return more;
}

ServerSet SlabPlacement::place_on_reserve(uint64_t slab) {
  ServerSet chosen = take_most(spare_);
  if (chosen != 0) servers_.table().place(slab, chosen);
  return chosen;
}

ServerSet SlabPlacement::place_unclaimed(uint64_t slab) {
  LockGuard hold(lock_);
  ServerSet placed = servers_.table().holders(slab);
  return placed != 0 ? placed : place_on_reserve(slab);
}

}  // namespace farside::remote
