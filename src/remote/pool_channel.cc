#include "remote/pool_channel.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "transport/ranges.h"

namespace farside::remote {
namespace {

using transport::ByteRange;
using transport::Token;

// Limits of one wait for one server. The first, where several servers are awaited: then the others are polled. The
// second, where only one is: then a loss of the server that another thread has detected is checked.
constexpr uint64_t kLookNs = 2'000'000;
constexpr uint64_t kLookForLossNs = 50'000'000;

// All other errors are replies of the server.
bool is_loss(int error) { return error == -ECONNRESET || error == -EBADMSG; }

// Calls visit(slab, piece) for each part of a range that is in one slab. 0, or the first error of visit.
template <typename Visit>
int for_each_piece(std::span<const ByteRange> ranges, Visit visit) {
  for (ByteRange rest : ranges) {
    while (rest.bytes > 0) {
      auto bytes = static_cast<uint32_t>(SlabTable::bytes_in_slab(rest.far, rest.bytes));
      if (int r = visit(SlabTable::slab_of(rest.far), ByteRange{rest.far, bytes, rest.near}); r < 0) return r;
      rest.far += bytes;
      rest.bytes -= bytes;
      if (rest.near) rest.near = static_cast<std::byte*>(rest.near) + bytes;
    }
  }
  return 0;
}

bool continues(const ByteRange& first, const ByteRange& next) {
  bool near = first.near ? static_cast<std::byte*>(first.near) + first.bytes == next.near : !next.near;
  return near && first.far + first.bytes == next.far;
}

}  // namespace

PoolChannel::~PoolChannel() {
  for (unsigned s = 0; s < kMaxServers; s++) drop(s);
  for (Request& request : requests_) near_free(request.staging, request.staging_bytes);
}

int PoolChannel::submit_read(std::span<const ByteRange> ranges, Token* token) {
  Request* request;
  if (int r = begin(Kind::kRead, ranges, transport::kMaxRequestBytes, &request); r < 0) return r;
  return finish_submit(request, send(request), token);
}

int PoolChannel::submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) {
  Request* request;
  if (int r = begin(Kind::kWrite, ranges, transport::kMaxRequestBytes, &request); r < 0) return r;
  if (pipe < 0) return finish_submit(request, send(request), token);
  ServerSet all = 0;
  if (int r = targets(request, &all); r < 0) return finish_submit(request, r, token);
  if (std::popcount(all) == 1) {
    auto server = static_cast<unsigned>(std::countr_zero(all));
    int sent = send_to(request, server, pipe);
    if (is_loss(sent)) answered(request, server, sent);
    return finish_submit(request, sent, token);
  }
  int staged = stage(request, pipe);
  return finish_submit(request, staged < 0 ? staged : send(request), token);
}

int PoolChannel::submit_discard(std::span<const ByteRange> ranges, Token* token) {
  Request* request;
  if (int r = begin(Kind::kDiscard, ranges, transport::kNoByteLimit, &request); r < 0) return r;
  return finish_submit(request, send(request), token);
}

// Checks a list and copies it to a free request. A write counts as begun from now on, until end().
int PoolChannel::begin(Kind kind, std::span<const ByteRange> ranges, uint64_t max_bytes, Request** request) {
  uint64_t bytes, end = servers_.region_bytes();
  if (int r = transport::check_ranges(ranges, max_bytes, &bytes); r < 0) return r;
  for (const ByteRange& s : ranges) {
    if (s.bytes > end || s.far > end - s.bytes) return -ERANGE;
  }
  *request = free_request();
  if (!*request) return -EAGAIN;
  (*request)->kind = kind;
  (*request)->awaited = 0;
  (*request)->incomplete = false;
  (*request)->refusing = kMaxServers;
  (*request)->count = ranges.size();
  memcpy((*request)->ranges, ranges.data(), ranges.size_bytes());
  if (kind == Kind::kRead || !servers_.repairs()) return 0;
  for (const ByteRange& range : ranges) servers_.writes().begin(range.far, range.bytes);
  return 0;
}

int PoolChannel::finish_submit(Request* request, int sent, Token* token) {
  if (sent < 0) {
    end(request);
    return sent;
  }
  request->token = *token = (++sequence_ * transport::kMaxInFlight) | static_cast<size_t>(request - requests_);
  return 0;
}

// The request is complete, or was not sent.
void PoolChannel::end(Request* request) {
  request->token = 0;
  if (request->kind == Kind::kRead || !servers_.repairs()) return;
  for (const ByteRange& range : std::span(request->ranges, request->count))
    servers_.writes().end(range.far, range.bytes);
}

int PoolChannel::stage(Request* request, int pipe) {
  std::span<ByteRange> ranges(request->ranges, request->count);
  return transport::stage_pipe(pipe, ranges, &request->staging, &request->staging_bytes);
}

// Sends a request to all of its servers. 0; or -errno when a part of it has no server, and then nothing was sent.
int PoolChannel::send(Request* request) {
  ServerSet all = 0;
  if (int r = targets(request, &all); r < 0) return r;
  request->incomplete = false;
  for_each(all, [&](unsigned server) {
    if (int r = send_to(request, server, -1); r < 0) answered(request, server, r);
  });
  return 0;
}

// Determines the servers of a request, once: the holders of a slab may change at any time. A number could have been
// given to another server between the look at the slabs and the opening of its channel. Then it begins again, so that
// the channels are to the servers that the slabs named.
int PoolChannel::targets(Request* request, ServerSet* all) {
  for (;;) {
    ServerSet lost = refresh();
    ServerSet failed = 0;
    *all = 0;
    int r = read_targets(request, lost, all, &failed);
    for_each(*all, [&](unsigned server) { open(server); });
    if (servers_.states().reused != reused_) continue;
    return failed == 0 ? r : servers_.fail_request(r, failed);
  }
}

// Slabs without holder read as zeros, which are stored in the buffers here. Discards are sent as a whole, and need no
// servers of each piece. *failed: the holders of a slab, where all are lost.
int PoolChannel::read_targets(Request* request, ServerSet lost, ServerSet* all, ServerSet* failed) {
  size_t count = 0;
  request->versions = request->joining = 0;
  return for_each_piece({request->ranges, request->count}, [&](uint64_t slab, const ByteRange& piece) {
    ServerSet servers = 0;
    if (int r = targets_of(request, slab, lost, &servers); r < 0) {
      if (r == -ECONNRESET) *failed = servers;
      return r;
    }
    if (servers == 0 && request->kind == Kind::kRead && piece.near) memset(piece.near, 0, piece.bytes);
    if (request->kind != Kind::kDiscard) targets_[count++] = servers;
    *all |= servers;
    return 0;
  });
}

// -ECONNRESET: all holders are lost, and *servers is these.
int PoolChannel::targets_of(Request* request, uint64_t slab, ServerSet lost, ServerSet* servers) {
  Kind kind = request->kind;
  if (kind == Kind::kWrite && servers_.holders(slab) == 0 && placement_.place_unclaimed(slab) == 0) return -ENOSPC;
  SlabServers now = servers_.servers_of(slab);
  request->versions += now.version;
  request->joining |= now.joining;
  if (now.holders == 0) return 0;
  ServerSet holders = now.holders & ~lost;
  if (holders == 0 && kind != Kind::kDiscard) {
    *servers = now.holders;
    return -ECONNRESET;
  }
  *servers = kind == Kind::kRead ? only(servers_.reader_of(slab, holders)) : now.all() & ~lost;
  return 0;
}

// Closes channels to servers whose number belongs to another one. Returns the servers that are lost.
ServerSet PoolChannel::refresh() {
  ServerStates now = servers_.states();
  if (now.reused == reused_) return now.lost;
  reused_ = now.reused;
  for (unsigned s = 0; s < kMaxServers; s++) {
    if (!servers_.is_current(s, channels_[s].member)) drop(s);
  }
  return now.lost;
}

int PoolChannel::send_to(Request* request, unsigned server, int pipe) {
  transport::Channel* channel = channels_[server].channel;
  if (!channel || (servers_.lost() & only(server))) return -ECONNRESET;
  Token* token = &request->asked[server];
  int r;
  if (request->kind == Kind::kDiscard) {
    // The list includes slabs of other servers: discarding them has no effect on this one.
    r = channel->submit_discard({request->ranges, request->count}, token);
  } else {
    std::span<ByteRange> part = part_for(*request, server);
    if (part.empty()) return 0;
    r = request->kind == Kind::kRead ? channel->submit_read(part, token) : channel->submit_write(part, pipe, token);
  }
  if (r != 0) return r;
  request->awaited |= only(server);
  if (gathers_) held_ |= only(server);
  return 0;
}

// The pieces of a read or write for one server. There are at most as many as the request has ranges, because a
// range is in two slabs at most, and its two pieces are joined again if both are for the same server. A piece of a
// read without a buffer is read in place and not sent.
std::span<ByteRange> PoolChannel::part_for(const Request& request, unsigned server) {
  size_t count = 0, pieces = 0;
  bool reads = request.kind == Kind::kRead;
  for_each_piece({request.ranges, request.count}, [&](uint64_t slab, const ByteRange& piece) {
    if ((targets_[pieces++] & only(server)) == 0 || (reads && !piece.near)) return 0;
    if (count > 0 && slab * kSlabBytes == piece.far && continues(part_[count - 1], piece))
      part_[count - 1].bytes += piece.bytes;
    else part_[count++] = piece;
    return 0;
  });
  return {part_, count};
}

void PoolChannel::gather(bool on) {
  gathers_ = on;
  for (ServerChannel& to : channels_) {
    if (to.channel) to.channel->gather(on);
  }
}

// Sends the requests that the channels of the servers have gathered: polling one request of a channel sends all of
// them.
void PoolChannel::send_held() {
  for (Request& request : requests_) {
    if (held_ == 0) return;
    if (request.token == 0) continue;
    ServerSet reached = request.awaited & held_;
    held_ &= ~reached;
    for (; reached != 0; reached &= reached - 1) ask(&request, static_cast<unsigned>(std::countr_zero(reached)));
  }
  held_ = 0;
}

int PoolChannel::poll(Token token) {
  Request* request = find(token);
  if (!request) return -EINVAL;
  refresh();
  if (held_ != 0) send_held();
  int r = progress(request);
  if (r != 0) end(request);
  return r;
}

int PoolChannel::wait(Token token, uint64_t timeout_ns) {
  uint64_t start = now_ns();
  for (;;) {
    int r = poll(token);
    if (r != 0) return r > 0 ? 0 : r;
    uint64_t passed = now_ns() - start;
    if (passed >= timeout_ns) return -ETIMEDOUT;
    Request* request = find(token);
    auto server = static_cast<unsigned>(std::countr_zero(request->awaited));
    uint64_t look = std::has_single_bit(request->awaited) ? kLookForLossNs : kLookNs;
    r = channels_[server].channel->wait(request->asked[server], std::min(look, timeout_ns - passed));
    if (r != -ETIMEDOUT) answered(request, server, r);
  }
}

// 1: complete; 0: in flight; else the error.
int PoolChannel::progress(Request* request) {
  for (;;) {
    for (ServerSet rest = request->awaited; rest != 0; rest &= rest - 1) {
      ask(request, static_cast<unsigned>(std::countr_zero(rest)));
    }
    if (request->awaited != 0) return 0;
    if (int r = conclude(request); r != 0) return r;
  }
}

void PoolChannel::ask(Request* request, unsigned server) {
  if (servers_.lost() & only(server)) return answered(request, server, -ECONNRESET);
  int r = channels_[server].channel->poll(request->asked[server]);
  if (r != 0) answered(request, server, r > 0 ? 0 : r);
}

// Handles a server's result for its part of a request. The channel to a lost server is closed at once, so that it
// writes into no buffer of a request that other servers complete.
void PoolChannel::answered(Request* request, unsigned server, int result) {
  request->awaited &= ~only(server);
  if (result == 0) return;
  request->incomplete = true;
  request->error = result;
  // A refusal of the only server is the result of the request. Of several, the server that refused has missed a write.
  bool is_only = servers_.replicas() == 1 && (request->joining & only(server)) == 0;
  if (is_only && !is_loss(result)) {
    request->refusing = server;
    return;
  }
  const char* why = result == -EBADMSG ? "protocol violation" : is_loss(result) ? "connection lost" : "request refused";
  servers_.lose(server, channels_[server].member, why);
  drop(server);
}

// Closes a channel. What was sent over it is not answered any more.
void PoolChannel::drop(unsigned server) {
  servers_.close_channel(server, std::exchange(channels_[server], {}));
  for (Request& request : requests_) {
    if ((request.awaited & only(server)) == 0) continue;
    request.awaited &= ~only(server);
    request.incomplete = true;
    request.error = -ECONNRESET;
  }
}

// All servers have replied. 1: complete; 0: sent again to other holders; else the error.
int PoolChannel::conclude(Request* request) {
  if (request->refusing != kMaxServers) return servers_.fail_request(request->error, only(request->refusing));
  bool is_read = request->kind == Kind::kRead;
  if (!request->incomplete && !(is_read && has_moved(*request))) return 1;
  if (is_read) return send(request);
  ServerSet lost = lost_holders(*request);
  return lost == 0 ? 1 : servers_.fail_request(request->error, lost);
}

// Whether servers of its slabs have changed since it was sent. Then the slab may have been removed from the server that
// was read.
bool PoolChannel::has_moved(const Request& request) const {
  uint32_t versions = 0;
  for_each_piece({request.ranges, request.count}, [&](uint64_t slab, const ByteRange&) {
    versions += servers_.servers_of(slab).version;
    return 0;
  });
  return versions != request.versions;
}

// None if every piece has a holder that is not lost. The request was sent to it, and it has acknowledged: it was
// not lost then either, and a server that became a holder since then was joining, since a repair waits for writes that
// began before. Else the holders of a piece.
ServerSet PoolChannel::lost_holders(const Request& request) const {
  ServerSet found;
  ServerStates before;
  do {
    found = 0;
    before = servers_.states();
    for_each_piece({request.ranges, request.count}, [&](uint64_t slab, const ByteRange&) {
      ServerSet holders = servers_.holders(slab);
      if ((holders & ~before.lost) == 0) found |= holders;
      return 0;
    });
  } while (servers_.states().reused != before.reused);
  return found;
}

void PoolChannel::open(unsigned server) {
  if (channels_[server].member || (servers_.lost() & only(server))) return;
  Status status;
  channels_[server] = servers_.open_channel(server, &status);
  if (channels_[server].channel) channels_[server].channel->gather(gathers_);
}

PoolChannel::Request* PoolChannel::find(Token token) { return transport::find_request(requests_, token); }

PoolChannel::Request* PoolChannel::free_request() { return transport::free_request(requests_); }

}  // namespace farside::remote
