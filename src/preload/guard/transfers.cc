#include "preload/guard/transfers.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <climits>

#include "preload/guard/syscall_table.h"

namespace farside::preload {
namespace {

constexpr long kNoOffset = -1;

// How a call lays out its arguments.
struct Shape {
  bool vector;     // an iovec array instead of one buffer
  bool write;      // from the program's buffer
  int offset_arg;  // index of the file offset; kNoOffset: none
};

bool shape_of(long number, Shape* shape) {
  switch (number) {
    case SYS_read:
      *shape = {false, false, kNoOffset};
      return true;
    case SYS_write:
      *shape = {false, true, kNoOffset};
      return true;
    case SYS_pread64:
      *shape = {false, false, 3};
      return true;
    case SYS_pwrite64:
      *shape = {false, true, 3};
      return true;
    case SYS_recvfrom:
      *shape = {false, false, kNoOffset};
      return true;
    case SYS_sendto:
      *shape = {false, true, kNoOffset};
      return true;
    case SYS_readv:
      *shape = {true, false, kNoOffset};
      return true;
    case SYS_writev:
      *shape = {true, true, kNoOffset};
      return true;
    case SYS_preadv:
    case SYS_preadv2:
      *shape = {true, false, 3};
      return true;
    case SYS_pwritev:
    case SYS_pwritev2:
      *shape = {true, true, 3};
      return true;
    default:
      return false;
  }
}

bool is_regular_file(int fd) {
  struct stat s;
  return os::call(SYS_fstat, fd, &s) == 0 && S_ISREG(s.st_mode);
}

// A list of pieces, and a position in it.
class Cursor {
 public:
  Cursor(const iovec* pieces, size_t count) : pieces_(pieces), count_(count) {}

  // The next bytes, at most `limit`, as a list of at most `room` pieces. Does not advance.
  size_t next(iovec* out, size_t room, uint64_t limit) const {
    size_t n = 0;
    uint64_t offset = offset_;
    for (size_t i = index_; i < count_ && n < room && limit > 0; i++, offset = 0) {
      uint64_t left = pieces_[i].iov_len - offset;
      if (left == 0) continue;
      uint64_t take = left < limit ? left : limit;
      out[n++] = {static_cast<char*>(pieces_[i].iov_base) + offset, take};
      limit -= take;
    }
    return n;
  }
  void advance(uint64_t bytes) {
    while (index_ < count_ && bytes >= pieces_[index_].iov_len - offset_) {
      bytes -= pieces_[index_++].iov_len - offset_;
      offset_ = 0;
    }
    offset_ += bytes;
  }

 private:
  const iovec* pieces_;
  size_t count_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

uint64_t total_bytes(const iovec* pieces, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; i++) total += pieces[i].iov_len;
  return total;
}

bool any_far(const iovec* pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (pieces[i].iov_len > 0 && is_far(pieces[i].iov_base)) return true;
  }
  return false;
}

constexpr size_t kPieces = 32;  // of one part of a split transfer; each takes a pin record

long transfer_part(const Call& call, const Shape& shape, const iovec* pieces, size_t count, uint64_t done) {
  Pins pins(call.stack_pointer);
  for (size_t i = 0; i < count; i++) pins.add(pieces[i].iov_base, pieces[i].iov_len, !shape.write);
  bool socket = call.number == SYS_recvfrom || call.number == SYS_sendto;
  if (socket) {
    // Every part has the address; a stream socket, the only kind with more than one part, ignores it.
    pins.add(reinterpret_cast<void*>(call.arg[4]), sizeof(sockaddr_storage), !shape.write);
    if (!shape.write) pins.add(reinterpret_cast<void*>(call.arg[5]), sizeof(socklen_t), true);
  }
  Call part = call;
  if (shape.vector) {
    part.arg[1] = reinterpret_cast<long>(pieces);
    part.arg[2] = static_cast<long>(count);
  } else {
    part.arg[1] = reinterpret_cast<long>(pieces[0].iov_base);
    part.arg[2] = static_cast<long>(pieces[0].iov_len);
  }
  bool positioned = shape.offset_arg >= 0 && call.arg[shape.offset_arg] != -1;  // preadv2: -1 is the file position
  if (positioned) part.arg[shape.offset_arg] += static_cast<long>(done);
  // No signal interrupts a transfer of a regular file that has begun.
  if (done > 0 && is_regular_file(static_cast<int>(call.arg[0]))) return issue_uninterrupted(part);
  return issue(part);
}

// True if a transfer continues after a part that was moved completely.
bool should_continue(const Call& call, const Shape& shape) {
  if (shape.write) return true;
  if (call.number == SYS_recvfrom) return (call.arg[3] & MSG_WAITALL) != 0;
  return is_regular_file(static_cast<int>(call.arg[0]));
}

long split_transfer(const Call& call, const Shape& shape, const iovec* pieces, size_t count) {
  Cursor cursor(pieces, count);
  uint64_t total = total_bytes(pieces, count), done = 0;
  for (;;) {
    iovec part[kPieces];
    size_t n = cursor.next(part, shape.vector ? kPieces : 1, pin_limit());
    if (n == 0 && done > 0) return static_cast<long>(done);
    // Nothing to move: the kernel still reads the list of pieces or the address, which may be far.
    if (n == 0) part[n++] = {count > 0 ? pieces[0].iov_base : nullptr, 0};
    uint64_t wanted = total_bytes(part, n);
    long r = transfer_part(call, shape, part, n, done);
    if (r < 0) return done > 0 ? static_cast<long>(done) : r;
    done += static_cast<uint64_t>(r);
    cursor.advance(static_cast<uint64_t>(r));
    if (static_cast<uint64_t>(r) < wanted || done >= total || !should_continue(call, shape))
      return static_cast<long>(done);
  }
}

// ---- Messages ----

// A copy of a message header, with as many pieces as may be pinned.
struct Message {
  msghdr header;
  iovec pieces[kPieces];
};

bool pin_message(Pins& pins, const msghdr& from, Message* to, bool write) {
  to->header = from;
  if (from.msg_iovlen > IOV_MAX) return false;
  Cursor cursor(from.msg_iov, from.msg_iovlen);
  to->header.msg_iovlen = cursor.next(to->pieces, kPieces, pin_limit());
  to->header.msg_iov = to->pieces;
  for (size_t i = 0; i < to->header.msg_iovlen; i++) pins.add(to->pieces[i].iov_base, to->pieces[i].iov_len, !write);
  pins.add(from.msg_name, from.msg_namelen, !write);
  pins.add(from.msg_control, from.msg_controllen, !write);
  return true;
}

bool message_is_far(const msghdr* header) {
  if (is_far(header) || is_far(header->msg_iov) || is_far(header->msg_name) || is_far(header->msg_control)) return true;
  return header->msg_iovlen <= IOV_MAX && any_far(header->msg_iov, header->msg_iovlen);
}

long message_call(const Call& call, bool write) {
  auto* header = reinterpret_cast<msghdr*>(call.arg[1]);
  if (!header || !message_is_far(header)) return issue(call);
  Pins pins(call.stack_pointer);
  Message copy;
  if (!pin_message(pins, *header, &copy, write)) return -EMSGSIZE;
  Call near = call;
  near.arg[1] = reinterpret_cast<long>(&copy.header);
  long r = issue(near);
  if (write || r < 0) return r;
  header->msg_namelen = copy.header.msg_namelen;
  header->msg_controllen = copy.header.msg_controllen;
  header->msg_flags = copy.header.msg_flags;
  return r;
}

// sendmmsg and recvmmsg: each message by the single form, as the kernel does.
long messages_call(const Call& call, bool write) {
  auto* list = reinterpret_cast<mmsghdr*>(call.arg[1]);
  auto count = static_cast<unsigned>(call.arg[2]);
  for (unsigned i = 0; i < count; i++) {
    Call one = {write ? SYS_sendmsg : SYS_recvmsg,
                {call.arg[0], reinterpret_cast<long>(&list[i].msg_hdr), call.arg[3]},
                call.stack_pointer};
    // Treated as MSG_WAITFORONE: after the first message, the others do not block.
    if (!write && i > 0) one.arg[2] |= MSG_DONTWAIT;
    if (!write) one.arg[2] &= ~static_cast<long>(MSG_WAITFORONE);
    long r = message_call(one, write);
    if (r < 0) return i > 0 ? static_cast<long>(i) : r;
    list[i].msg_len = static_cast<unsigned>(r);
  }
  return count;
}

bool messages_are_far(const Call& call) {
  auto* list = reinterpret_cast<mmsghdr*>(call.arg[1]);
  if (is_far(list)) return true;
  for (unsigned i = 0; list && i < static_cast<unsigned>(call.arg[2]); i++) {
    if (message_is_far(&list[i].msg_hdr)) return true;
  }
  return false;
}

// A list of pieces in a call, replaced by as much of it as may be pinned.
class PinnedPieces {
 public:
  PinnedPieces(Pins& pins, Call& call, int list_arg, uint64_t limit, bool write) {
    auto* pieces = reinterpret_cast<const iovec*>(call.arg[list_arg]);
    auto count = static_cast<size_t>(call.arg[list_arg + 1]);
    if (count > IOV_MAX || (!is_far(pieces) && !any_far(pieces, count))) return;
    size_t taken = Cursor(pieces, count).next(part_, kPieces / 2, limit);
    call.arg[list_arg] = reinterpret_cast<long>(part_);
    call.arg[list_arg + 1] = static_cast<long>(taken);
    for (size_t i = 0; i < taken; i++) pins.add(part_[i].iov_base, part_[i].iov_len, write);
  }

 private:
  iovec part_[kPieces / 2];
};

// process_vm_readv and process_vm_writev. The pieces of another process may be absent there: EFAULT, as for memory that
// is not mapped.
long process_memory_call(const Call& call, bool write_local) {
  Pins pins(call.stack_pointer);
  Call near = call;
  bool own = call.arg[0] == os::getpid();
  uint64_t limit = pin_limit() / 2;
  PinnedPieces local(pins, near, 1, limit, write_local);
  if (!own) return issue(near);
  PinnedPieces remote(pins, near, 3, limit, !write_local);
  return issue(near);
}

}  // namespace

bool transfer_call(const Call& call, long* result) {
  switch (call.number) {
    case SYS_sendmsg:
      *result = message_call(call, true);
      return true;
    case SYS_recvmsg:
      *result = message_call(call, false);
      return true;
    case SYS_sendmmsg:
      *result = messages_are_far(call) ? messages_call(call, true) : issue(call);
      return true;
    case SYS_recvmmsg:
      *result = messages_are_far(call) ? messages_call(call, false) : issue(call);
      return true;
    case SYS_process_vm_readv:
      *result = process_memory_call(call, true);
      return true;
    case SYS_process_vm_writev:
      *result = process_memory_call(call, false);
      return true;
    default:
      break;
  }
  Shape shape;
  if (!shape_of(call.number, &shape)) return false;
  auto* buffer = reinterpret_cast<void*>(call.arg[1]);
  if (shape.vector) {
    auto* pieces = static_cast<const iovec*>(buffer);
    auto count = static_cast<size_t>(call.arg[2]);
    bool far = count <= IOV_MAX && (is_far(pieces) || any_far(pieces, count));
    *result = far ? split_transfer(call, shape, pieces, count) : issue(call);
    return true;
  }
  if (!is_far(buffer)) {
    bool socket = call.number == SYS_recvfrom || call.number == SYS_sendto;
    *result = socket && is_far(reinterpret_cast<void*>(call.arg[4])) ? table_call(call) : issue(call);
    return true;
  }
  iovec piece = {buffer, static_cast<size_t>(call.arg[2])};
  *result = split_transfer(call, shape, &piece, 1);
  return true;
}

}  // namespace farside::preload
