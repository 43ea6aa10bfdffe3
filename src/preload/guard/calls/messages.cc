#include "preload/guard/calls/messages.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/log.h"
#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/calls/syscall_table.h"

namespace farside::preload {
namespace {

constexpr size_t kFixed = 2;  // pieces of a message before those of its data: name and ancillary data

// The messages of a call: one header, or a list of them.
struct Messages {
  std::byte* first;
  size_t stride;
  size_t count;
  bool sent;

  msghdr* header(size_t i) const { return reinterpret_cast<msghdr*>(first + i * stride); }
  bool several() const { return stride == sizeof(mmsghdr); }
};

// The messages of one system call, with their near copies.
struct Batch {
  mmsghdr one;
  mmsghdr* headers = &one;
  PieceLists lists;
  size_t count = 0;   // of messages
  size_t pieces = 0;  // in the lists
};

bool is_readable(const msghdr& header, uint64_t stack_pointer) {
  if (header.msg_iovlen > IOV_MAX) return false;
  if (!preload::is_readable(header.msg_iov, header.msg_iovlen * sizeof(iovec), stack_pointer)) return false;
  return !has_invalid_piece(header.msg_iov, header.msg_iovlen);
}

bool is_far(const msghdr& header) {
  if (touches_far(header.msg_name, header.msg_namelen) || touches_far(header.msg_control, header.msg_controllen))
    return true;
  return touches_far(header.msg_iov, header.msg_iovlen * sizeof(iovec)) || any_far(header.msg_iov, header.msg_iovlen);
}

// The messages up to the first one with a header or list that cannot be read, which the kernel refuses.
size_t readable_messages(const Messages& all, uint64_t stack_pointer) {
  for (size_t i = 0; i < all.count; i++) {
    if (!preload::is_readable(all.header(i), all.stride, stack_pointer)) return i;
    if (!is_readable(*all.header(i), stack_pointer)) return i;
  }
  return all.count;
}

bool any_far(const Messages& all) {
  for (size_t i = 0; i < all.count; i++) {
    if (touches_far(all.header(i), all.stride) || is_far(*all.header(i))) return true;
  }
  return false;
}

// How many messages from `first` on are sent by one call: those that are whole together.
size_t messages_in_batch(const Messages& all, size_t first) {
  uint64_t bytes = 0;
  for (size_t i = first; i < all.count; i++) {
    bytes += total_bytes(all.header(i)->msg_iov, all.header(i)->msg_iovlen);
    if (all.sent && bytes > kMaxWhole && i > first) return i - first;
  }
  return all.count - first;
}

// Lists the pieces of a message, its data from `skip` on and up to `limit`.
void add_pieces(Batch& batch, const msghdr& from, uint64_t skip, uint64_t limit) {
  iovec* list = batch.lists.from + batch.pieces;
  mmsghdr& to = batch.headers[batch.count++];
  to.msg_hdr = from;
  to.msg_len = 0;
  list[0] = {from.msg_name, std::min<size_t>(from.msg_name ? from.msg_namelen : 0, sizeof(sockaddr_storage))};
  list[1] = {from.msg_control, from.msg_control ? from.msg_controllen : 0};
  if (skip > 0) to.msg_hdr.msg_controllen = list[1].iov_len = 0;  // sent with the first part
  Cursor cursor(from.msg_iov, from.msg_iovlen);
  cursor.advance(skip);
  to.msg_hdr.msg_iovlen = cursor.next(list + kFixed, from.msg_iovlen, limit);
  batch.pieces += kFixed + to.msg_hdr.msg_iovlen;
}

bool make_batch(Pins& pins, Batch& batch, const Messages& all, size_t first, size_t count, uint64_t skip) {
  size_t pieces = 0;
  for (size_t i = first; i < first + count; i++) pieces += kFixed + all.header(i)->msg_iovlen;
  if (!batch.lists.make(pins, pieces)) return false;
  if (count > 1) batch.headers = reinterpret_cast<mmsghdr*>(pins.map_near(count * sizeof(mmsghdr)));
  if (!batch.headers) return false;
  uint64_t limit = all.sent ? kMaxWhole : kMaxTransfer;
  for (size_t i = first; i < first + count; i++) add_pieces(batch, *all.header(i), skip, limit);
  return true;
}

// Lets the headers refer to what the kernel can access.
void connect(Batch& batch) {
  iovec* list = batch.lists.to;
  for (size_t i = 0; i < batch.count; i++) {
    msghdr& header = batch.headers[i].msg_hdr;
    header.msg_name = list[0].iov_base;
    header.msg_control = list[1].iov_base;
    header.msg_iov = list + kFixed;
    list += kFixed + header.msg_iovlen;
  }
}

// Stores a message that was received. `piece`: its first one.
bool store_message(const NearPieces& near, const Batch& batch, size_t i, size_t piece, uint64_t bytes,
                   msghdr* program) {
  const msghdr& got = batch.headers[i].msg_hdr;
  const iovec* list = batch.lists.to + piece;
  size_t end = piece + kFixed + got.msg_iovlen;
  uint64_t data = std::min(bytes, total_bytes(list + kFixed, got.msg_iovlen));
  uint64_t name = std::min<uint64_t>(got.msg_namelen, list[0].iov_len);
  uint64_t control = std::min<uint64_t>(got.msg_controllen, list[1].iov_len);
  if (near.store(piece + kFixed, end, data) < data) return false;
  if (near.store(piece, piece + 1, name) < name || near.store(piece + 1, piece + 2, control) < control) return false;
  program->msg_namelen = got.msg_namelen;
  program->msg_controllen = got.msg_controllen;
  program->msg_flags = got.msg_flags;
  return true;
}

// After the kernel's call: stores what it has written. Returns the call's result.
long finish(const NearPieces& near, const Batch& batch, const Messages& all, size_t first, long result) {
  size_t moved = all.several() ? static_cast<size_t>(result) : 1, piece = 0;
  for (size_t i = 0; i < moved; i++) {
    msghdr* program = all.header(first + i);
    uint64_t bytes = all.several() ? batch.headers[i].msg_len : static_cast<uint64_t>(result);
    if (!all.sent && !store_message(near, batch, i, piece, bytes, program))
      return i > 0 ? static_cast<long>(i) : -EFAULT;
    if (all.several()) reinterpret_cast<mmsghdr*>(program)->msg_len = static_cast<unsigned>(bytes);
    piece += kFixed + batch.headers[i].msg_hdr.msg_iovlen;
  }
  return result;
}

// With MSG_TRUNC a stream's bytes are dropped, and the buffers keep their content.
Use use_of(const Call& call, const Messages& all) {
  int flags = static_cast<int>(call.arg[all.several() ? 3 : 2]);
  return all.sent ? Use::kIn : flags & MSG_TRUNC ? Use::kInOut : Use::kOut;
}

// One call of the kernel. skip: bytes of a single message that were sent before.
long move(const Call& call, const Messages& all, size_t first, size_t count, uint64_t skip) {
  Pins pins(call.stack_pointer);
  Batch batch;
  if (!make_batch(pins, batch, all, first, count, skip)) return -ENOMEM;
  NearPieces near(pins, use_of(call, all));
  if (long error = near.take(batch.lists.from, batch.lists.to, batch.pieces)) return error;
  connect(batch);
  Call part = call;
  part.arg[1] = reinterpret_cast<long>(all.several() ? static_cast<void*>(batch.headers) : &batch.headers->msg_hdr);
  if (all.several()) part.arg[2] = static_cast<long>(count);
  auto* timeout = reinterpret_cast<void*>(call.arg[4]);
  if (call.number == SYS_recvmmsg) pins.add(timeout, sizeof(timespec), true);
  long r = issue(part);
  return r < 0 ? r : finish(near, batch, all, first, r);
}

// A message that is longer than what is moved as a whole: a stream divides it as it likes.
long send_long(const Call& call, const Messages& all, uint64_t total) {
  if (is_message_socket(static_cast<int>(call.arg[0]))) return refuse_whole("a message", -EMSGSIZE);
  for (uint64_t done = 0;;) {
    uint64_t wanted = std::min(total - done, kMaxWhole);
    long r = move(call, all, 0, 1, done);
    if (r < 0) return done > 0 ? static_cast<long>(done) : r;
    done += static_cast<uint64_t>(r);
    if (static_cast<uint64_t>(r) < wanted || done == total) return static_cast<long>(done);
  }
}

long send_one(const Call& call, const Messages& all) {
  uint64_t total = std::min(total_bytes(all.header(0)->msg_iov, all.header(0)->msg_iovlen), kMaxTransfer);
  return total > kMaxWhole ? send_long(call, all, total) : move(call, all, 0, 1, 0);
}

long send_several(const Call& call, const Messages& all) {
  for (size_t done = 0;;) {
    size_t count = messages_in_batch(all, done);
    uint64_t total = total_bytes(all.header(done)->msg_iov, all.header(done)->msg_iovlen);
    long r;
    if (total > kMaxWhole) {
      Call one = {SYS_sendmsg, {call.arg[0], 0, call.arg[3]}, call.stack_pointer};
      r = send_one(one, {reinterpret_cast<std::byte*>(all.header(done)), sizeof(msghdr), 1, true});
      if (r >= 0) reinterpret_cast<mmsghdr*>(all.header(done))->msg_len = static_cast<unsigned>(r), r = 1;
    } else {
      r = move(call, all, done, count, 0);
    }
    if (r < 0) return done > 0 ? static_cast<long>(done) : r;
    done += static_cast<size_t>(r);
    if (static_cast<size_t>(r) < count || done == all.count) return static_cast<long>(done);
  }
}

// The kernel refuses the first message, for its reason.
long refused_call(const Call& call, const Messages& all) {
  Pins pins(call.stack_pointer);
  pins.add(all.first, all.stride, false);
  if (preload::is_readable(all.first, all.stride, call.stack_pointer)) {
    const msghdr& header = *all.header(0);
    pins.add(header.msg_iov, std::min<uint64_t>(header.msg_iovlen, IOV_MAX) * sizeof(iovec), false);
  }
  return issue(call);
}

long messages_call(const Call& call, bool sent, bool several) {
  size_t count = several ? static_cast<unsigned>(call.arg[2]) : 1;
  if (sent) count = std::min<size_t>(count, IOV_MAX);
  Messages all = {reinterpret_cast<std::byte*>(call.arg[1]), several ? sizeof(mmsghdr) : sizeof(msghdr), count, sent};
  all.count = readable_messages(all, call.stack_pointer);
  if (all.count == 0 && count > 0) return refused_call(call, all);
  if (!any_far(all)) return several ? table_call(call) : issue(call);
  if (!sent) return move(call, all, 0, all.count, 0);
  return several ? send_several(call, all) : send_one(call, all);
}

// ---- Memory of processes ----

// A list of pieces in a call of process_vm_readv or process_vm_writev.
struct MemoryList {
  const iovec* program;
  size_t count;
  PieceLists lists;
  uint64_t total = 0;

  MemoryList(const Call& call, int arg)
      : program(reinterpret_cast<const iovec*>(call.arg[arg])), count(static_cast<size_t>(call.arg[arg + 1])) {}
  bool is_valid(uint64_t stack_pointer) const {
    return count <= IOV_MAX && preload::is_readable(program, count * sizeof(iovec), stack_pointer) &&
           !has_invalid_piece(program, count);
  }
  // Puts the list, from `skip` on and up to kMaxWhole bytes, where the call gets it.
  long take(NearPieces& near, Call& call, int arg, uint64_t skip) {
    Cursor cursor(program, count);
    cursor.advance(skip);
    size_t n = cursor.next(lists.from, count, kMaxWhole);
    total = total_bytes(lists.from, n);
    call.arg[arg] = reinterpret_cast<long>(lists.to);
    call.arg[arg + 1] = static_cast<long>(n);
    return near.take(lists.from, lists.to, n);
  }
};

// The pieces of another process may be absent there: EFAULT, as for memory that is not mapped.
long move_memory(const Call& call, bool reads, uint64_t done, uint64_t* wanted) {
  Pins pins(call.stack_pointer);
  MemoryList local(call, 1), remote(call, 3);
  NearPieces near_local(pins, reads ? Use::kOut : Use::kIn), near_remote(pins, reads ? Use::kIn : Use::kOut);
  bool own = shares_memory(call.arg[0]);
  Call near = call;
  if (!local.lists.make(pins, local.count) || !remote.lists.make(pins, remote.count)) return -ENOMEM;
  if (long error = local.take(near_local, near, 1, done)) return error;
  if (own) {
    if (long error = remote.take(near_remote, near, 3, done)) return error;
  }
  *wanted = own ? std::min(local.total, remote.total) : local.total;
  long r = issue(near);
  if (r <= 0) return r;
  const NearPieces& written = reads ? near_local : near_remote;
  return static_cast<long>(written.store(0, reads ? local.count : remote.count, static_cast<uint64_t>(r)));
}

long process_memory_call(const Call& call, bool reads) {
  MemoryList local(call, 1), remote(call, 3);
  if (!local.is_valid(call.stack_pointer) || !remote.is_valid(call.stack_pointer)) return issue(call);
  bool own = shares_memory(call.arg[0]);
  uint64_t total = std::min(total_bytes(local.program, local.count), total_bytes(remote.program, remote.count));
  for (uint64_t done = 0;;) {
    uint64_t wanted = 0;
    long r = move_memory(call, reads, done, &wanted);
    if (r < 0) return done > 0 ? static_cast<long>(done) : r;
    done += static_cast<uint64_t>(r);
    if (!own || static_cast<uint64_t>(r) < wanted || done >= total) return static_cast<long>(done);
  }
}

}  // namespace

long refuse_whole(const char* what, long error) {
  static std::atomic<unsigned> warned{0};
  unsigned kind = error == -EMSGSIZE ? 1 : 2;
  if ((warned.fetch_or(kind) & kind) == 0) {
    log(LogLevel::kError,
        "{} of more than {} MiB from far memory is refused, since it cannot be written as a whole; "
        "let the program write less at a time",
        what, kMaxWhole / kMiB);
  }
  return error;
}

bool is_message_socket(int fd) {
  int type = 0;
  socklen_t length = sizeof type;
  return os::call(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type != SOCK_STREAM;
}

bool message_call(const Call& call, long* result) {
  switch (call.number) {
    case SYS_sendmsg:
      *result = messages_call(call, true, false);
      return true;
    case SYS_recvmsg:
      *result = messages_call(call, false, false);
      return true;
    case SYS_sendmmsg:
      *result = messages_call(call, true, true);
      return true;
    case SYS_recvmmsg:
      *result = messages_call(call, false, true);
      return true;
    case SYS_process_vm_readv:
      *result = process_memory_call(call, true);
      return true;
    case SYS_process_vm_writev:
      *result = process_memory_call(call, false);
      return true;
    default:
      return false;
  }
}

}  // namespace farside::preload
