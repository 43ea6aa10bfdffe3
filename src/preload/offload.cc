#include "preload/offload.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "base/clock.h"
#include "base/sync.h"
#include "objects/api.h"
#include "offload/backend.h"
#include "preload/functions.h"
#include "remote/call_channel.h"

namespace farside::preload {
namespace {

using offload::Expected;
using offload::fail;
using pager::Pager;

// The pages of a call, in order and disjoint.
struct Pages {
  pager::CallRange ranges[wire::kMaxCallRanges];
  size_t count = 0;
  bool written = false;
  std::span<const pager::CallRange> all() const { return {ranges, count}; }
};

// The ranges of a call in whole pages, in the order of their addresses; they may overlap.
struct SortedRanges {
  pager::CallRange ranges[wire::kMaxCallRanges];
  size_t count = 0;
};

// A memory server, with a channel for each call at a time. Further ones are opened when all others are in use.
class Server {
 public:
  struct Channel {
    Channel(remote::ServerStore& store, uint64_t base, unsigned process) : calls(store, base, process) {}
    Mutex lock;  // held during a call
    remote::CallChannel calls GUARDED_BY(lock);
  };
  Server(remote::ServerStore& store, uint64_t base)
      : channels_{{store, base, 0}, {store, base, 1}, {store, base, 2}, {store, base, 3}} {}

  // Opens a connection at the first time.
  bool offers_calls();
  // A channel that is open and locked. A status: there is none.
  Status acquire(Channel** channel) NO_THREAD_SAFETY_ANALYSIS;  // which lock is known when it runs

 private:
  static constexpr unsigned kChannels = 4;
  enum class Offer { kUnknown, kYes, kNo };
  // Locks a channel that is not in use, or waits for one in turn. Returns its number.
  unsigned lock_any() NO_THREAD_SAFETY_ANALYSIS;  // which lock is known when it runs

  Channel channels_[kChannels];
  std::atomic<Offer> offer_{Offer::kUnknown};
  std::atomic<unsigned> usable_{kChannels};  // that the server permits
  std::atomic<unsigned> turn_{0};            // which one to wait for
};

bool Server::offers_calls() {
  if (offer_ == Offer::kUnknown) {
    LockGuard hold(channels_[0].lock);
    Status opened = channels_[0].calls.open();
    // EAGAIN: the server has as many clients as it permits; the next call asks again.
    if (opened.ok()) offer_ = Offer::kYes;
    else if (opened.code() != EAGAIN) offer_ = Offer::kNo;
  }
  return offer_ == Offer::kYes;
}

unsigned Server::lock_any() {
  unsigned usable = usable_;
  for (unsigned i = 0; i < usable; i++) {
    if (channels_[i].lock.try_lock()) return i;
  }
  unsigned i = turn_.fetch_add(1, std::memory_order_relaxed) % usable;
  channels_[i].lock.lock();
  return i;
}

Status Server::acquire(Channel** channel) {
  for (;;) {
    unsigned i = lock_any();
    Status opened = channels_[i].calls.open();
    if (opened.ok()) {
      *channel = &channels_[i];
      return {};
    }
    channels_[i].lock.unlock();
    bool is_limit = opened.code() == EAGAIN;  // of the server: it permits no further process
    if (i == 0 || !is_limit) return opened;
    usable_ = std::min<unsigned>(usable_, i);
  }
}

class ServerBackend final : public offload::Backend, public NearObject {
 public:
  explicit ServerBackend(Pager* pager) : pager_(*pager) {}

  int choose(const farside_offload_request& request, farside_offload_reply* reply, Expected* expected) override;
  int call(const farside_offload_request& request, const Expected& expected, farside_offload_reply* reply,
           bool* may_repeat) override;
  void note_local(const Expected& expected, uint64_t ns) override { costs_.ran_locally(expected, ns); }
  int servers() override;
  int place(uint64_t address, size_t bytes, size_t* same_bytes) override;
  void reset_in_child();

 private:
  int call(const farside_offload_request& request, uint64_t stopped_before, farside_offload_reply* reply,
           bool* may_repeat);
  void expect(const farside_offload_request& request, const Pages& pages, Expected* expected);
  int sort_ranges(const farside_offload_request& request, SortedRanges* sorted);
  int find_pages(const farside_offload_request& request, Pages* pages);
  uint32_t holders_of(const Pages& pages);
  uint32_t offering(uint32_t holders);
  Server* server(unsigned i);
  bool offers(unsigned i);
  static Status prepare(remote::CallChannel& channel, std::span<const FunctionPlace> places, uint32_t* objects);
  Status call_on(Server& server, const farside_offload_request& request, const Pages& pages,
                 farside_offload_reply* reply, int* result, bool* may_repeat);

  Pager& pager_;
  bool is_child_ = false;
  Functions functions_;
  offload::CallCosts costs_;
  Mutex lock_;  // guards the creation of servers_
  std::atomic<Server*> servers_[remote::kMaxServers] = {};
};

// The frame of a call: a header, the request, its ranges, its arguments. Near memory.
class CallFrame {
 public:
  CallFrame(const farside_offload_request& request, const Pages& pages)
      : bytes_(kArguments + pages.count * sizeof(wire::CallRange) + request.argument_bytes),
        data_(static_cast<std::byte*>(near_alloc(bytes_))) {
    auto* arguments = data_ + kArguments + pages.count * sizeof(wire::CallRange);
    if (request.argument_bytes > 0) memcpy(arguments, request.arguments, request.argument_bytes);
    head_.range_count = static_cast<uint32_t>(pages.count);
    head_.argument_bytes = static_cast<uint32_t>(request.argument_bytes);
  }
  ~CallFrame() { near_free(data_, bytes_); }
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  void set_entry(uint32_t object, uint64_t offset) { head_.entry_object = object, head_.entry = offset; }
  void set_function(uint32_t object, uint64_t offset) { head_.function_object = object, head_.function = offset; }
  std::span<std::byte> finish(const Pages& pages, const std::byte* base) {
    memcpy(data_ + sizeof(wire::FrameHeader), &head_, sizeof head_);
    std::byte* at = data_ + kArguments;
    for (const pager::CallRange& r : pages.all()) {
      wire::CallRange range = {static_cast<uint64_t>(r.address - base), r.bytes, r.written ? 1u : 0u};
      memcpy(at, &range, sizeof range);
      at += sizeof range;
    }
    return {data_, bytes_};
  }

 private:
  static constexpr size_t kArguments = sizeof(wire::FrameHeader) + sizeof(wire::CallRequest);
  const size_t bytes_;
  std::byte* const data_;
  wire::CallRequest head_ = {};
};

// Adds a range of pages to the end of the list; extends the last one where it follows or overlaps. -E2BIG: the list is
// full.
int append(Pages* pages, uint64_t begin, uint64_t end, bool written) {
  if (begin >= end) return 0;
  auto* at = reinterpret_cast<std::byte*>(begin);
  pager::CallRange* last = pages->count > 0 ? &pages->ranges[pages->count - 1] : nullptr;
  if (last && last->written == written && last->address + last->bytes == at) {
    last->bytes += end - begin;
    return 0;
  }
  if (pages->count == wire::kMaxCallRanges) return -E2BIG;
  pages->ranges[pages->count++] = {at, end - begin, written};
  return 0;
}

uint64_t structures_of(const farside_offload_request& request) {
  uint64_t all = 0;
  for (size_t i = 0; i < request.range_count; i++) all |= request.ranges[i].structures;
  return all;
}

// 0; -E2BIG; -EINVAL: no such structure; -EOPNOTSUPP: a range is not in the far space.
int ServerBackend::sort_ranges(const farside_offload_request& request, SortedRanges* sorted) {
  for (size_t i = 0; i < request.range_count; i++) {
    const farside_offload_range& r = request.ranges[i];
    if (r.bytes == 0 || r.structures != 0) continue;
    auto begin = align_down(reinterpret_cast<uint64_t>(r.data), kPageSize);
    auto end = align_up(reinterpret_cast<uint64_t>(r.data) + r.bytes, kPageSize);
    if (!pager_.table().in_space(begin) || !pager_.table().in_space(end - 1)) return -EOPNOTSUPP;
    sorted->ranges[sorted->count++] = {reinterpret_cast<std::byte*>(begin), end - begin, r.written != 0};
  }
  if (uint64_t structures = structures_of(request)) {
    std::span<std::byte> memory[wire::kMaxCallRanges];
    size_t room = wire::kMaxCallRanges - sorted->count;
    ssize_t count = objects::list_memory(structures, {memory, room});
    if (count < 0) return static_cast<int>(count);
    if (static_cast<size_t>(count) > room) return -E2BIG;
    for (ssize_t i = 0; i < count; i++) sorted->ranges[sorted->count++] = {memory[i].data(), memory[i].size(), false};
  }
  std::sort(sorted->ranges, sorted->ranges + sorted->count,
            [](const pager::CallRange& a, const pager::CallRange& b) { return a.address < b.address; });
  return 0;
}

// Errors: as sort_ranges. A page that is both read and written is written.
int ServerBackend::find_pages(const farside_offload_request& request, Pages* pages) {
  SortedRanges sorted;
  if (int error = sort_ranges(request, &sorted)) return error;
  // What is not covered by written ranges is read. `read_until`, `written_until`: ends of what came before.
  uint64_t at = 0, read_until = 0, written_until = 0;
  for (size_t i = 0; i <= sorted.count; i++) {
    const pager::CallRange* range = i < sorted.count ? &sorted.ranges[i] : nullptr;
    uint64_t next = range ? reinterpret_cast<uint64_t>(range->address) : ~uint64_t{0};
    while (at < next && at < std::max(read_until, written_until)) {
      bool written = at < written_until;
      uint64_t end = std::min(next, written ? written_until : read_until);
      if (int error = append(pages, at, end, written)) return error;
      at = end;
    }
    if (!range) break;
    at = next;
    pages->written |= range->written;
    uint64_t& until = range->written ? written_until : read_until;
    until = std::max(until, next + range->bytes);
  }
  return 0;
}

uint32_t ServerBackend::holders_of(const Pages& pages) {
  uint32_t all = ~0u;
  for (const pager::CallRange& r : pages.all())
    all &= pager_.store()->call_holders(static_cast<uint64_t>(r.address - pager_.space().base()), r.bytes, r.written);
  return all;
}

Server* ServerBackend::server(unsigned i) {
  Server* known = servers_[i].load(std::memory_order_acquire);
  if (known) return known;
  LockGuard hold(lock_);
  if (Server* made = servers_[i].load()) return made;
  remote::ServerStore* store = pager_.store()->call_server(i);
  if (!store) return nullptr;
  auto* made = new (near_alloc(sizeof(Server))) Server(*store, reinterpret_cast<uint64_t>(pager_.space().base()));
  servers_[i].store(made, std::memory_order_release);
  return made;
}

bool ServerBackend::offers(unsigned i) {
  Server* s = server(i);
  return s && s->offers_calls();
}

uint32_t ServerBackend::offering(uint32_t holders) {
  uint32_t offering = 0;
  for (unsigned i = 0; i < remote::kMaxServers; i++) {
    if ((holders >> i & 1) && offers(i)) offering |= 1u << i;
  }
  return offering;
}

int ServerBackend::servers() { return is_child_ ? 0 : std::popcount(offering(~0u)); }

int ServerBackend::place(uint64_t address, size_t bytes, size_t* same_bytes) {
  if (bytes == 0 || is_child_ || !pager_.table().in_space(address) || !pager_.table().in_space(address + bytes - 1))
    return -1;
  uint64_t far = address - reinterpret_cast<uint64_t>(pager_.space().base());
  uint32_t holders = offering(pager_.store()->call_holders(far, 1, false));
  if (holders == 0) return -1;
  uint64_t same = std::min(bytes, align_up(far + 1, remote::kSlabBytes) - far);
  while (same < bytes) {
    uint64_t step = std::min<uint64_t>(remote::kSlabBytes, bytes - same);
    uint32_t both = holders & pager_.store()->call_holders(far + same, step, false);
    if (both == 0) break;
    holders = both;
    same += step;
  }
  *same_bytes = same;
  return std::countr_zero(holders);
}

void ServerBackend::expect(const farside_offload_request& request, const Pages& pages, Expected* expected) {
  pager::CallShare share = pager_.server_calls().share_of(pages.all());
  auto bytes_of = [](uint64_t count) { return static_cast<double>(count * kPageSize); };
  auto entry = reinterpret_cast<uint64_t>(request.entry), function = reinterpret_cast<uint64_t>(request.function);
  expected->function = std::rotl(entry, 20) ^ function;
  expected->bytes = bytes_of(share.pages), expected->far = bytes_of(share.far), expected->dirty = bytes_of(share.dirty);
}

int ServerBackend::choose(const farside_offload_request& request, farside_offload_reply* reply, Expected* expected) {
  Pages pages;
  bool automatic = request.mode == FARSIDE_OFFLOAD_AUTOMATIC;
  expected->stopped = objects::stopped_here();
  int found = is_child_ ? -EOPNOTSUPP : find_pages(request, &pages);
  if (found == -EINVAL) return fail(reply, found, "a data structure of the call does not exist");
  if (found == -E2BIG && !automatic) return fail(reply, found, "the pages of a call are more than 256 ranges");
  uint32_t holders = found == 0 ? holders_of(pages) : 0;
  bool possible = holders != 0 && offering(holders) != 0;
  if (automatic && possible) {
    expect(request, pages, expected);
    return costs_.prefers_server(*expected);
  }
  if (possible) return 1;
  if (automatic) return 0;
  return fail(reply, -EOPNOTSUPP,
              is_child_      ? "memory servers execute no functions of forked processes"
              : found != 0   ? "a range of the call is not far memory"
              : holders == 0 ? "no single memory server holds all ranges of the call; see for_each_server"
                             : "the memory server executes no functions for this client; see farside serve --offload");
}

// Opens the connection and sends the objects, unless that was done before.
Status ServerBackend::prepare(remote::CallChannel& channel, std::span<const FunctionPlace> places, uint32_t* objects) {
  auto is_new = [&](const FunctionPlace& place) { return !channel.knows(place.image->hash()); };
  if (std::count_if(places.begin(), places.end(), is_new) > channel.room()) channel.close();
  if (Status s = channel.open(); !s.ok()) return s;
  for (const FunctionPlace& place : places) {
    if (Status s = channel.add({place.image->bytes(), place.image->hash()}, objects++); !s.ok()) return s;
  }
  return {};
}

int ServerBackend::call(const farside_offload_request& request, const Expected& expected, farside_offload_reply* reply,
                        bool* may_repeat) {
  uint64_t start = now_ns();
  int result = call(request, expected.stopped, reply, may_repeat);
  if (expected.function == 0) return result;
  if (result == -EBUSY && *may_repeat) return result;  // moves did not end: says nothing about the server
  if (result < 0) costs_.failed_on_server(expected);
  else costs_.ran_on_server(expected, now_ns() - start);
  return result;
}

// While one lives, no objects of the structures are moved.
class MovesStopped {
 public:
  explicit MovesStopped(uint64_t structures) : structures_(structures), error_(objects::stop_moves(structures)) {}
  ~MovesStopped() {
    if (error_ == 0) objects::permit_moves(structures_);
  }
  MovesStopped(const MovesStopped&) = delete;
  MovesStopped& operator=(const MovesStopped&) = delete;
  int error() const { return error_; }

 private:
  const uint64_t structures_;
  const int error_;
};

// While one lives, what a call accesses stays on its servers.
class CallCounted {
 public:
  CallCounted(Pager& pager, const Pages& pages) : pager_(pager), pages_(pages) {
    for (const pager::CallRange& r : pages_.all()) pager_.store()->begin_call(far_of(r), r.bytes, r.written);
  }
  ~CallCounted() {
    for (const pager::CallRange& r : pages_.all()) pager_.store()->end_call(far_of(r), r.bytes, r.written);
  }
  CallCounted(const CallCounted&) = delete;
  CallCounted& operator=(const CallCounted&) = delete;

 private:
  uint64_t far_of(const pager::CallRange& r) const { return static_cast<uint64_t>(r.address - pager_.space().base()); }

  Pager& pager_;
  const Pages& pages_;
};

int ServerBackend::call(const farside_offload_request& request, uint64_t stopped_before, farside_offload_reply* reply,
                        bool* may_repeat) {
  Pages pages;
  *may_repeat = true;
  MovesStopped stopped(structures_of(request) & ~stopped_before);
  if (stopped.error() != 0)
    return fail(reply, stopped.error(), "far objects of the call have been being moved for a second; try again");
  int result = find_pages(request, &pages);
  if (result < 0) return fail(reply, result, "the ranges of the call have changed");
  constexpr int kTries = 3;
  Status status;
  for (int i = 0; i < kTries; i++) {
    CallCounted counted(pager_, pages);
    uint32_t holders = offering(holders_of(pages));
    if (holders == 0) return fail(reply, -EOPNOTSUPP, "no memory server executes the call");
    // Another server that has a copy, after a failure.
    for (int skip = i % std::popcount(holders); skip > 0; skip--) holders &= holders - 1;
    status =
        call_on(*server(static_cast<unsigned>(std::countr_zero(holders))), request, pages, reply, &result, may_repeat);
    if (status.ok()) return result;
    if (status.code() != ECONNRESET || !*may_repeat) break;
  }
  reply->written_undefined = !*may_repeat;
  return fail(reply, -status.code(), status.text());
}

// Between begin_call and end_call nothing may touch far memory: a written range may be on the same page.
Status ServerBackend::call_on(Server& server, const farside_offload_request& request, const Pages& pages,
                              farside_offload_reply* reply, int* result, bool* may_repeat) {
  FunctionPlace places[2];  // of the entry, and of the function if there is one
  unsigned count = request.function ? 2 : 1;
  Status status = functions_.find(reinterpret_cast<const void*>(request.entry), &places[0]);
  if (status.ok() && request.function) status = functions_.find(request.function, &places[1]);
  if (!status.ok()) return status;
  CallFrame frame(request, pages);
  std::byte* copy = nullptr;
  wire::CallReply answer = {};
  {
    Server::Channel* channel;
    if (status = server.acquire(&channel); !status.ok()) return status;
    std::unique_lock hold(channel->lock, std::adopt_lock);
    channel->lock.assert_held();
    remote::CallChannel& calls = channel->calls;
    uint32_t objects[2] = {};
    status = prepare(calls, {places, count}, objects);
    if (!status.ok()) return status;
    frame.set_entry(objects[0], places[0].offset);
    if (request.function) frame.set_function(objects[1], places[1].offset);
    std::span<std::byte> bytes = frame.finish(pages, pager_.space().base());
    SignalsBlocked blocked;
    if (int error = pager_.server_calls().begin(pages.all()))
      return Status::error(-error, "a range of the call is not memory that the program may access");
    *may_repeat = false;
    status = calls.call(bytes, &answer);
    bool unknown = status.code() == ECONNRESET;
    // Answered when nothing of the call is left on the server. Without a connection, its memory is lost anyway.
    if (unknown && pages.written) (void)calls.open();
    pager_.server_calls().end(pages.all());
    if (!status.ok()) {
      *may_repeat = !unknown || !pages.written;
      return status;
    }
    copy = static_cast<std::byte*>(near_alloc(answer.result_bytes + 1));
    memcpy(copy, calls.result().data(), answer.result_bytes);
  }
  *result = answer.status;
  *may_repeat = answer.status < 0 && answer.started == 0;
  if (answer.status < 0) {
    copy[answer.result_bytes] = std::byte{0};
    reply->written_undefined = answer.started != 0;
    fail(reply, answer.status, reinterpret_cast<const char*>(copy));
  } else {
    reply->result.bytes = std::min<size_t>(answer.result_bytes, reply->result.capacity);
    memcpy(reply->result.data, copy, reply->result.bytes);
    reply->on_server = 1;
  }
  near_free(copy, answer.result_bytes + 1);
  return {};
}

// Other threads may have held the locks at the fork.
void ServerBackend::reset_in_child() {
  is_child_ = true;
  functions_.reset_in_child();
  new (&lock_) Mutex;
}

ServerBackend* g_backend = nullptr;

}  // namespace

void enable_offload(pager::Pager* pager) {
  g_backend = new ServerBackend(pager);
  offload::set_backend(g_backend);
}

void reset_offload_in_child() {
  if (g_backend) g_backend->reset_in_child();
}

}  // namespace farside::preload
