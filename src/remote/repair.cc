#include "remote/repair.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"

namespace farside::remote {
namespace {

using transport::ByteRange;
using transport::Token;

constexpr int kNice = 10;                             // where cores are scarce, the program's threads have them
constexpr uint64_t kLookEveryNs = 100'000'000;        // for slabs with fewer copies
constexpr uint64_t kLookForDrainsNs = 1'000'000'000;  // where nothing is gained by finding a loss soon
constexpr uint64_t kRetryEveryNs = 500'000'000;       // while no server has room for a copy
constexpr uint64_t kPatienceNs = 50'000'000;  // of one wait; then a loss that another thread has detected is checked
constexpr uint64_t kFailurePauseNs = 100'000'000;
constexpr uint64_t kWrittenPauseNs = 1'000'000;  // before a place that was written meanwhile is copied again
constexpr unsigned kAttempts = 1000;             // to copy a place
constexpr uint64_t kRoomNs = 3'000'000'000;      // in which a server with room may join the pool
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPages = WriteCounts::kPlaceBytes / kPageBytes;
static_assert(kPages <= transport::kMaxRanges && WriteCounts::kPlaceBytes <= transport::kMaxRequestBytes);
static_assert(kSlabBytes % WriteCounts::kPlaceBytes == 0);

}  // namespace

Repair::Repair(PoolServers* servers, SlabPlacement* placement, void (*callback)(void*), void* argument)
    : servers_(*servers), placement_(*placement), callback_(callback), argument_(argument) {}

Repair::~Repair() { stop(); }

void Repair::start() {
  auto entry = [](void* repair) { static_cast<Repair*>(repair)->run(); };
  stopping_.store(false);
  int error = thread_.start(entry, this);
  if (error)
    log(LogLevel::kError,
        "lost replicas will not be repaired, nor servers drained: no thread can be started (error {})", -error);
}

void Repair::stop() {
  stopping_.store(true);
  changed_.wake_all();
  thread_.join();
  release();
}

void Repair::pause() {
  pausing_.store(true);
  working_.lock();
}

// Also where no pause() was, as after a fork that failed.
void Repair::resume() {
  if (!pausing_.exchange(false)) return;
  working_.unlock();
}

// The channels' descriptors were closed by the stores.
void Repair::reset_in_child() {
  new (&working_) Mutex;
  pausing_.store(false);
  for (auto* progress : {&repaired_, &began_ns_, &copied_of_slab_}) progress->store(0);
  reported_ = 0;
  changed_.reset_in_child();
  thread_.reset_in_child();
  for (ServerChannel& channel : channels_) channel = {};
}

void Repair::run() {
  os::name_thread("farside-repair");
  os::call(SYS_setpriority, PRIO_PROCESS, 0, kNice);
  while (!stopping_.load()) {
    uint32_t seen = changed_.value();
    if (!wants_to_stop()) tend();
    if (!wants_to_stop() && step()) continue;
    if (repaired_.load() > reported_ && !wants_to_stop()) report();
    bool waits = (servers_.lost() & ~servers_.left()) != 0 || servers_.draining() != 0;
    uint64_t look_every = servers_.replicas() > 1 ? kLookEveryNs : kLookForDrainsNs;
    if (!stopping_.load()) changed_.wait(seen, waits ? kRetryEveryNs : look_every);
  }
}

void Repair::report() {
  uint64_t repaired = repaired_.load(), left = servers_.degraded();
  log(LogLevel::kWarning, "{} copies of 16 MiB were made anew on other servers; {} are missing", repaired - reported_,
      left);
  reported_ = repaired;
}

RepairStatus Repair::status() const {
  constexpr uint64_t kPlaces = kSlabBytes / WriteCounts::kPlaceBytes;
  RepairStatus status = {.degraded = servers_.degraded(), .repaired = repaired_.load()};
  uint64_t began = began_ns_.load(), copied = copied_places_.load(), missing = status.degraded * kPlaces;
  if (missing == 0) return status;
  double left = static_cast<double>(missing - std::min(missing, copied_of_slab_.load()));
  if (began == 0 || copied == 0) status.seconds_left = -1;
  else status.seconds_left = left / static_cast<double>(copied) * static_cast<double>(now_ns() - began) / 1e9;
  return status;
}

// A fork waits for this as for a repair.
void Repair::tend() {
  LockGuard working(working_);
  look_at_servers();
  retire_lost();
  callback_(argument_);
}

// A program that is idle sends no request that would find a loss. Unless its copies are made, the next loss ends it.
void Repair::look_at_servers() {
  ServerSet draining = 0;
  for_each(servers_.usable(), [&](unsigned s) {
    if (!servers_[s].check_connection().ok()) servers_.lose(s, "connection lost");
    else if (servers_[s].is_draining()) draining |= only(s);
  });
  if ((draining | servers_.draining()) == 0) return;
  LockGuard hold(placement_.lock());
  placement_.drain(draining);
}

// Between copies, so a number changes neither its server while this thread uses it, nor while a slab is removed there.
void Repair::retire_lost() {
  if ((servers_.lost() & ~servers_.retired()) != 0) {
    LockGuard hold(placement_.lock());
    for_each(placement_.retire_lost(), [&](unsigned s) { close(s); });
  }
  LockGuard hold(placement_.lock());
  servers_.delete_unused();
}

bool Repair::step() {
  LockGuard working(working_);
  SlabRepair repair;
  bool begun = begin(&repair);
  note_lack_of_room(!begun);
  if (!begun) {
    began_ns_.store(0);
    release();
    return false;
  }
  note_begin();
  bool copied = copy(repair);
  ServerSet removed = 0;
  {
    LockGuard hold(placement_.lock());
    removed = placement_.conclude_repair(repair, copied);
  }
  for_each(removed, [&](unsigned s) { remove(repair.slab, s); });
  {
    LockGuard hold(placement_.lock());
    placement_.end_repair(repair, removed);
  }
  bool complete = removed != only(repair.server);
  copied_of_slab_.store(0);
  if (complete) repaired_.fetch_add(1);
  if (!complete && !wants_to_stop()) os::nanosleep_ns(kFailurePauseNs);
  return true;
}

bool Repair::begin(SlabRepair* repair) {
  LockGuard hold(placement_.lock());
  return placement_.begin_repair(&next_slab_, repair);
}

// Once for each server that drains.
void Repair::note_lack_of_room(bool lacks) {
  ServerSet drain = servers_.draining() & servers_.usable();
  warned_of_room_ &= drain;
  uint64_t slabs = lacks && drain != 0 ? servers_.degraded() : 0, now = now_ns();
  if (slabs == 0 || lacks_room_ns_ == 0) lacks_room_ns_ = slabs == 0 ? 0 : now;
  if (slabs == 0 || now - lacks_room_ns_ < kRoomNs) return;
  for_each(drain & ~warned_of_room_, [&](unsigned s) {
    log(LogLevel::kWarning,
        "memory server {} drains, but no other server has room for {} slabs of 16 MiB; start a server that joins the "
        "pool, or keep this one (farside pool uncordon)",
        servers_[s].address(), slabs);
  });
  warned_of_room_ |= drain;
}

void Repair::note_begin() {
  if (began_ns_.load() != 0) return;
  copied_places_.store(0);
  began_ns_.store(now_ns());
}

// After each place the thread sleeps for as long as the copy took.
bool Repair::copy(const SlabRepair& repair) {
  if (!buffer_) buffer_ = static_cast<std::byte*>(near_alloc(WriteCounts::kPlaceBytes));
  uint64_t end = (repair.slab + 1) * kSlabBytes;
  for (uint64_t far = repair.slab * kSlabBytes; far < end; far += WriteCounts::kPlaceBytes) {
    uint64_t start = now_ns();
    Copied copied = Copied::kWritten;
    for (unsigned i = 0; i < kAttempts && copied == Copied::kWritten; i++) {
      if (wants_to_stop()) return false;
      if (i > 0) os::nanosleep_ns(kWrittenPauseNs);
      copied = copy_place(repair, far);
    }
    if (copied != Copied::kDone) return false;
    copied_places_.fetch_add(1);
    copied_of_slab_.fetch_add(1);
    os::nanosleep_ns(std::min(now_ns() - start, kLookEveryNs));
  }
  return true;
}

Repair::Copied Repair::copy_place(const SlabRepair& repair, uint64_t far) {
  uint32_t begun;
  if (!servers_.writes().is_quiet(far, &begun)) return Copied::kWritten;
  ServerSet holders = servers_.holders(repair.slab) & servers_.usable();
  if (holders == 0) return Copied::kFailed;
  unsigned source = servers_.reader_of(repair.slab, holders);
  int read = read_place(source, far);
  if (read == -EMFILE) return Copied::kFailed;  // that says nothing about the holder, which may be the last one
  if (read < 0) {
    lose(source, read);
    return Copied::kWritten;  // another holder may have it
  }
  if (int r = write_place(repair.server, far); r < 0) {
    // A server that only refuses to take over a slab may have the only copies of others.
    if (r == -ECONNRESET || r == -EBADMSG || servers_.replicas() > 1) lose(repair.server, r);
    return Copied::kFailed;
  }
  return servers_.writes().begun(far) == begun ? Copied::kDone : Copied::kWritten;
}

int Repair::read_place(unsigned server, uint64_t far) {
  ByteRange range = {far, WriteCounts::kPlaceBytes, buffer_};
  Token token;
  int r = open(server);
  if (r == 0) r = channels_[server].channel->submit_read({&range, 1}, &token);
  return r < 0 ? r : wait(server, token);
}

// Pages of zeros are discarded, so that they take no memory there.
int Repair::write_place(unsigned server, uint64_t far) {
  ByteRange written[kPages], discarded[kPages];
  size_t writes = 0, discards = 0;
  for (uint64_t page = 0; page < kPages; page++) {
    std::byte* data = buffer_ + page * kPageBytes;
    ByteRange range = {far + page * kPageBytes, kPageBytes, data};
    if (is_zero_page(data)) discarded[discards++] = {range.far, range.bytes, nullptr};
    else written[writes++] = range;
  }
  if (int r = open(server); r < 0) return r;
  Token token;
  int r = discards > 0 ? channels_[server].channel->submit_discard({discarded, discards}, &token) : 0;
  if (r == 0 && discards > 0) r = wait(server, token);
  if (r < 0 || writes == 0) return r;
  r = channels_[server].channel->submit_write({written, writes}, -1, &token);
  return r < 0 ? r : wait(server, token);
}

// Removes a slab from a server that is no holder, or no holder any more. It may be placed there again later, and must
// then be empty; so this waits until no write can arrive there any more. Reads that are in flight there are repeated,
// because the servers of the slab have changed.
void Repair::remove(uint64_t slab, unsigned server) {
  ByteRange range = {slab * kSlabBytes, static_cast<uint32_t>(kSlabBytes), nullptr};
  Token token;
  int r = wait_until_quiet(range.far, server);
  if (r == 0) r = open(server);
  if (r == 0) r = channels_[server].channel->submit_discard({&range, 1}, &token);
  if (r == 0) r = wait(server, token);
  if (r < 0) lose(server, r);
}

int Repair::wait_until_quiet(uint64_t far, unsigned server) {
  for (uint64_t end = far + kSlabBytes; far < end; far += WriteCounts::kPlaceBytes) {
    while (!is_quiet(far)) {
      if (servers_.lost() & only(server)) return -ECONNRESET;
      os::nanosleep_ns(kWrittenPauseNs);
    }
  }
  return 0;
}

bool Repair::is_quiet(uint64_t far) const {
  uint32_t begun;
  return servers_.writes().is_quiet(far, &begun) && servers_.calls().is_quiet(far, &begun);
}

int Repair::wait(unsigned server, Token token) {
  for (;;) {
    int r = channels_[server].channel->wait(token, kPatienceNs);
    if (r != -ETIMEDOUT) return r;
    if (servers_.lost() & only(server)) return -ECONNRESET;
  }
}

// The channel is closed at once: it may have a request in flight.
void Repair::lose(unsigned server, int error) {
  servers_.lose(server, error == -ECONNRESET ? "connection lost" : "a copy could not be made");
  close(server);
}

// 0, -EMFILE where this process has no descriptor for a channel, or -ECONNRESET.
int Repair::open(unsigned server) {
  if (servers_.lost() & only(server)) return -ECONNRESET;
  Status status;
  if (!channels_[server].channel) {
    close(server);
    channels_[server] = servers_.open_channel(server, &status);
  }
  if (channels_[server].channel) return 0;
  return status.code() == EMFILE ? -EMFILE : -ECONNRESET;
}

void Repair::close(unsigned server) { servers_.close_channel(server, std::exchange(channels_[server], {})); }

// What only copies need.
void Repair::release() {
  for (unsigned s = 0; s < kMaxServers; s++) close(s);
  near_free(std::exchange(buffer_, nullptr), WriteCounts::kPlaceBytes);
}

}  // namespace farside::remote
