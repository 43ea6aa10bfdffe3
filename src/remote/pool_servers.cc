#include "remote/pool_servers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace farside::remote {
namespace {

constexpr uint64_t kReturnAfterNs = 5'000'000'000;
constexpr uint64_t kMaxReturnAfterNs = 64 * kReturnAfterNs;
constexpr uint64_t kSteadyNs = 600'000'000'000;  // a server that is lost sooner failed again

}  // namespace

PoolServers::~PoolServers() {
  reset_in_child();
  for_each(all(), [&](unsigned s) { delete member(s); });
}

// Where the servers are those of a list, none of them may be forgotten: it is looked for by its number.
unsigned PoolServers::number_for(const char* address) const {
  unsigned longest = kMaxServers, own = kMaxServers;
  for_each(keeps_numbers_ ? 0 : retired(), [&](unsigned s) {
    if (strcmp((*this)[s].address(), address) == 0) own = s;
    if (longest == kMaxServers || member(s)->retry_ns < member(longest)->retry_ns) longest = s;
  });
  if (own != kMaxServers || count() < kMaxServers) return std::min(own, count());
  return may_grow_ ? longest : kMaxServers;
}

uint64_t PoolServers::wait_of_next(const char* address) const {
  uint64_t wait = kReturnAfterNs, newest = 0;
  for_each(all(), [&](unsigned s) {
    const PoolMember* m = member(s);
    if (strcmp(m->store->address(), address) != 0 || m->added_ns < newest) return;
    newest = m->added_ns;
    wait = m->was_steady ? kReturnAfterNs : std::min(2 * m->wait_ns, kMaxReturnAfterNs);
  });
  return wait;
}

// A reused number counts as lost until the server is complete.
void PoolServers::add(std::unique_ptr<ServerStore> server, std::string_view zone) {
  unsigned s = number_for(server->address());
  if (server->mapped()) mapped_.fetch_or(only(s));
  else mapped_.fetch_and(~only(s));
  uint64_t wait = wait_of_next(server->address());
  auto* m = new PoolMember(std::move(server), zone, now_ns(), wait);
  PoolMember* before = members_[s].exchange(m);
  if (!before) count_.fetch_add(1, std::memory_order_release);
  note_zone(s);
  if (!before) return;
  before->next = replaced_.load();
  replaced_.store(before);
  retired_.fetch_and(~only(s));
  left_.fetch_and(~only(s));
  ServerStates states = this->states();
  while (
      !states_.compare_exchange_weak(states, {static_cast<uint16_t>(states.lost & ~only(s)), 0, states.reused + 1})) {}
}

ServerSet PoolServers::retire(ServerSet lost) {
  ServerSet retired = 0;
  for_each(lost, [&](unsigned s) {
    bool may_be_read = (mapped_ & only(s)) && !may_grow_;  // in place
    if (may_be_read || (*this)[s].shares_fds()) return;
    (*this)[s].leave();
    retired |= only(s);
  });
  retired_.fetch_or(retired);
  return retired;
}

// owns_fd() may be looking at a member of the list, which therefore has no descriptors when it is taken out of it, and
// is deleted when no thread does.
void PoolServers::delete_unused() {
  for (std::atomic<PoolMember*>* at = &replaced_; PoolMember* m = *at;) {
    if (users_ != 0 || m->channels != 0) {
      at = &m->next;
      continue;
    }
    m->store->close_all();
    *at = m->next.load();
    m->next_closed = closed_;
    closed_ = m;
  }
  while (closed_ && users_ == 0) delete std::exchange(closed_, closed_->next_closed);
}

// The parent's threads do not exist, nor their channels.
void PoolServers::reset_in_child() {
  users_ = 0;
  mapped_ = 0;
  for_each(all(), [&](unsigned s) { member(s)->channels = 0; });
  for (PoolMember* m = replaced_; m; m = m->next) m->channels = 0;
  delete_unused();
}

ServerSet PoolServers::find(const char* address) const {
  for (unsigned s = 0; s < count(); s++) {
    bool is_lost = (lost() & only(s)) != 0;
    if (!is_lost && strcmp((*this)[s].address(), address) == 0) return only(s);
  }
  return 0;
}

const ServerStore* PoolServers::find_same(const ServerStore& server) const {
  const ServerStore* same = nullptr;
  for_each(usable(), [&](unsigned s) { same = (*this)[s].number() == server.number() ? &(*this)[s] : same; });
  return same;
}

bool PoolServers::knows(const char* address) const {
  bool found = false;
  for_each(all() & ~left(), [&](unsigned s) { found |= strcmp((*this)[s].address(), address) == 0; });
  return found;
}

bool PoolServers::may_return(unsigned server, uint64_t now) const {
  const PoolMember* m = member(server);
  bool was_added_again = false;
  for_each(all(), [&](unsigned s) {
    bool same = strcmp((*this)[s].address(), m->store->address()) == 0;
    was_added_again |= same && member(s)->added_ns > m->added_ns;
  });
  return !was_added_again && now > m->retry_ns && has_number(m->store->address());
}

// Sets those of the other servers, too.
void PoolServers::note_zone(unsigned server) {
  const char* zone = member(server)->zone;
  ServerSet same = 0;
  for_each(all(), [&](unsigned s) {
    bool is_same = s == server || (zone[0] != 0 && strcmp(member(s)->zone, zone) == 0);
    if (is_same) same |= only(s), same_zone_[s].fetch_or(only(server));
    else same_zone_[s].fetch_and(~only(server));
  });
  same_zone_[server].store(same);
}

ServerSet PoolServers::in_zones_of(ServerSet servers) const {
  ServerSet all = 0;
  for_each(servers, [&](unsigned s) { all |= same_zone_[s].load(std::memory_order_relaxed); });
  return all;
}

unsigned PoolServers::zones(ServerSet servers) const {
  unsigned count = 0;
  for (; servers != 0; count++) servers &= ~in_zones_of(servers & -servers);
  return count;
}

bool PoolServers::is_degraded(uint64_t slab) const {
  ServerSet holders = table_.holders(slab), stay = staying(), good = holders & stay;
  if (holders == 0) return false;
  return static_cast<unsigned>(std::popcount(good)) < replicas_ || zones(good) < std::min(replicas_, zones(stay));
}

uint64_t PoolServers::degraded() const {
  uint64_t slabs = 0;
  for (uint64_t slab = 0; slab < table_.end(); slab++) slabs += is_degraded(slab);
  return slabs;
}

ServerChannel PoolServers::open_channel(unsigned server, Status* status) {
  PoolMember* m;
  {
    Using safe(*this);
    m = member(server);
    m->channels.fetch_add(1);
  }
  return {m->store->open_channel(status), m};
}

void PoolServers::close_channel(unsigned server, ServerChannel channel) {
  if (!channel.member) return;
  if (!is_current(server, channel.member) || (lost() & only(server))) delete channel.channel;
  else if (channel.channel) channel.member->store->close_channel(channel.channel);
  channel.member->channels.fetch_sub(1);
}

// Slabs without holder read as zeros on every server.
ServerSet PoolServers::call_holders(uint64_t far, uint64_t bytes, bool written) const {
  ServerSet all = usable();
  for_each_slab(far, bytes, [&](uint64_t slab, uint64_t) {
    SlabServers servers = table_.servers(slab);
    ServerSet holders = servers.holders;
    if (written && (replicas_ > 1 || std::popcount(servers.all()) != 1)) all = 0;
    if (holders != 0) all &= holders;
  });
  return all;
}

unsigned PoolServers::reader_of(uint64_t slab, ServerSet holders) const {
  ServerSet mapped = holders & mapped_.load(std::memory_order_relaxed);
  if (mapped != 0) return static_cast<unsigned>(std::countr_zero(mapped));
  // Slab by slab in turn, so that all replicas share the work and neighbouring pages are read from the same server.
  for (auto skip = slab % static_cast<unsigned>(std::popcount(holders)); skip > 0; skip--) holders &= holders - 1;
  return static_cast<unsigned>(std::countr_zero(holders));
}

// False: it was lost already.
bool PoolServers::mark_lost(unsigned server, const PoolMember* m) {
  ServerStates now = states(), then;
  do {
    if ((now.lost & only(server)) || !is_current(server, m)) return false;
    then = now;
    then.lost = static_cast<uint16_t>(now.lost | only(server));
  } while (!states_.compare_exchange_weak(now, then));
  return true;
}

void PoolServers::lose(unsigned server, PoolMember* m, const char* reason) {
  if (!mark_lost(server, m)) return;
  uint64_t now = now_ns();
  m->retry_ns = now + m->wait_ns;
  m->was_steady = now - m->added_ns > kSteadyNs;
  m->store->keep_failure(reason);
  int left = std::popcount(usable());
  if (left == 0) return;  // fail_request reports it
  log(LogLevel::kWarning, "{}; {} of {} {} left{}", m->store->failure().text(), left, count(),
      replicas_ >= count() ? "replicas" : "servers",
      replicas_ > 1 ? ""
                    : "; the program ends when it accesses data that was stored there (--replicas 2 keeps copies)");
}

// A slab or a request needs the servers, so their numbers stay.
int PoolServers::fail_request(int error, ServerSet servers) const {
  auto last = static_cast<unsigned>(std::countr_zero(servers));
  auto lost_ns = [&](unsigned s) { return member(s)->retry_ns - member(s)->wait_ns; };  // later than all: just now
  for_each(servers, [&](unsigned s) { last = lost_ns(s) > lost_ns(last) ? s : last; });
  if (on_failure_) on_failure_((*this)[last].failure());
  return error;
}

void PoolServers::leave(unsigned server) {
  left_.fetch_or(only(server), std::memory_order_acq_rel);
  mark_lost(server, member(server));
  (*this)[server].leave();
  log(LogLevel::kWarning, "memory server {} drains, and has nothing of this program any more",
      (*this)[server].address());
}

// A mapping exists only if each page is on all servers: then each of them holds every slab. The number of servers is
// read once, since one that is added meanwhile holds nothing.
transport::Mapping PoolServers::mapping() const {
  transport::Mapping mapping;
  unsigned servers = count();
  if (may_grow_ || replicas_ < servers) return mapping;
  for_each((only(servers) - 1) & mapped_ & ~lost(), [&](unsigned s) {
    transport::Mapping one = (*this)[s].mapped()->mapping();
    if (!mapping.base && one.immediate) mapping = one;
  });
  return mapping;
}

bool PoolServers::owns_fd(int fd) const {
  Using safe(*this);
  for (unsigned s = 0; s < count(); s++) {
    if ((*this)[s].owns_fd(fd)) return true;
  }
  for (PoolMember* m = replaced_; m; m = m->next) {
    if (m->store->owns_fd(fd)) return true;
  }
  return false;
}

bool PoolServers::all_slabs_within(ServerSet servers) const {
  for (uint64_t slab = 0; slab < table_.end(); slab++) {
    ServerSet holders = table_.holders(slab);
    if (holders != 0 && (holders & servers) == 0) return false;
  }
  return true;
}

}  // namespace farside::remote
