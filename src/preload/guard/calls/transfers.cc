#include "preload/guard/calls/transfers.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "preload/guard/calls/messages.h"
#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/calls/proc_entries.h"
#include "preload/guard/calls/proc_status.h"
#include "preload/guard/calls/syscall_table.h"

namespace farside::preload {
namespace {

#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

constexpr int kNoOffset = -1;

// How a call lays out its arguments.
struct Shape {
  bool vector;     // an iovec array instead of one buffer
  bool write;      // from the program's buffer
  int offset_arg;  // index of the file offset; kNoOffset: none
};

bool shape_of(long number, Shape* shape) {
  switch (number) {
    case SYS_read:
    case SYS_recvfrom:
      *shape = {false, false, kNoOffset};
      return true;
    case SYS_write:
    case SYS_sendto:
      *shape = {false, true, kNoOffset};
      return true;
    case SYS_pread64:
      *shape = {false, false, 3};
      return true;
    case SYS_pwrite64:
      *shape = {false, true, 3};
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

int file_of(const Call& call) { return static_cast<int>(call.arg[0]); }
bool is_socket_call(const Call& call) { return call.number == SYS_recvfrom || call.number == SYS_sendto; }

// preadv2 and pwritev2: -1 is the file's own position.
bool is_positioned(const Call& call, const Shape& shape) {
  return shape.offset_arg >= 0 && call.arg[shape.offset_arg] != -1;
}

bool is_regular_file(int fd) {
  struct stat s;
  return os::call(SYS_fstat, fd, &s) == 0 && S_ISREG(s.st_mode);
}

bool appends(const Call& call) {
  if (call.number == SYS_pwritev2 && (call.arg[5] & RWF_APPEND)) return true;
  long flags = os::fcntl(file_of(call), F_GETFL, 0);
  return flags >= 0 && (flags & O_APPEND) && is_regular_file(file_of(call));
}

// The bytes of a call that are moved as a whole; 0: there are more, and the kernel would not divide them.
uint64_t whole_bytes(const Call& call, const Shape& shape, uint64_t total) {
  if (total <= kMaxWhole) return kMaxWhole;
  if (is_message_socket(file_of(call))) return shape.write ? 0 : kMaxTransfer;  // as much memory as arrives
  return shape.write && appends(call) ? 0 : kMaxWhole;
}

long refusal(const Call& call) {
  if (is_message_socket(file_of(call))) return refuse_whole("a message", -EMSGSIZE);
  return refuse_whole("a record of a file that is opened for appending", -ENOMEM);
}

// A limit of the file's size is reported by the call that begins there, which must be one of the program's.
bool is_at_file_limit(const Call& call, const Shape& shape, uint64_t done) {
  rlimit limit = {};
  if (os::call(SYS_getrlimit, RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  long position = is_positioned(call, shape) ? call.arg[shape.offset_arg] + static_cast<long>(done)
                                             : os::call(SYS_lseek, call.arg[0], 0, SEEK_CUR);
  return position >= 0 && static_cast<uint64_t>(position) >= limit.rlim_cur;
}

// True if a transfer continues after a part that was moved completely.
bool should_continue(const Call& call, const Shape& shape, uint64_t done) {
  if (shape.write) return !is_at_file_limit(call, shape, done);
  if (call.number == SYS_recvfrom) return (call.arg[3] & MSG_WAITALL) && !(call.arg[3] & MSG_PEEK);
  return is_regular_file(file_of(call));
}

// The address of a socket call, which all parts have; a stream socket, the only kind with more than one, ignores it.
void pin_address(Pins& pins, const Call& call, const Shape& shape) {
  pins.add(reinterpret_cast<void*>(call.arg[4]), sizeof(sockaddr_storage), !shape.write);
  if (!shape.write) pins.add(reinterpret_cast<void*>(call.arg[5]), sizeof(socklen_t), true);
}

// With MSG_TRUNC a stream's bytes are dropped, and the buffer keeps its content.
Use use_of(const Call& call, const Shape& shape) {
  if (shape.write) return Use::kIn;
  return call.number == SYS_recvfrom && (call.arg[3] & MSG_TRUNC) ? Use::kInOut : Use::kOut;
}

Call part_of(const Call& call, const Shape& shape, const iovec* pieces, size_t count, uint64_t done) {
  Call part = call;
  part.arg[1] = shape.vector ? reinterpret_cast<long>(pieces) : reinterpret_cast<long>(pieces[0].iov_base);
  part.arg[2] = static_cast<long>(shape.vector ? count : pieces[0].iov_len);
  if (is_positioned(call, shape)) part.arg[shape.offset_arg] += static_cast<long>(done);
  return part;
}

// What was read but cannot be stored is read again by the program's next call.
long give_up_rest(const Call& call, const Shape& shape, long read, uint64_t stored) {
  if (!is_positioned(call, shape)) os::call(SYS_lseek, call.arg[0], static_cast<long>(stored) - read, SEEK_CUR);
  return stored > 0 ? static_cast<long>(stored) : -EFAULT;
}

long transfer_part(const Call& call, const Shape& shape, const PieceLists& lists, size_t count, uint64_t done) {
  Pins pins(call.stack_pointer);
  NearPieces near(pins, use_of(call, shape));
  if (long error = near.take(lists.from, lists.to, count)) return error;
  if (is_socket_call(call)) pin_address(pins, call, shape);
  Call part = part_of(call, shape, lists.to, count, done);
  // No signal interrupts a transfer of a regular file that has begun. To copy is to begin: a timer that is faster than
  // the copy would make the program repeat the call for ever.
  bool begun = done > 0 || near.copied();
  long r = begun && is_regular_file(file_of(call)) ? issue_uninterrupted(part) : issue(part);
  if (r <= 0 || shape.write) return r;
  uint64_t read = std::min(static_cast<uint64_t>(r), total_bytes(lists.to, count));
  uint64_t stored = near.store(0, count, read);
  return stored < read ? give_up_rest(call, shape, r, stored) : r;
}

// The program's own memory as a file: before each part the pages that it accesses there are made near.
long own_memory_transfer(const Call& call, const Shape& shape, const iovec* pieces, size_t count, uint64_t position) {
  Pins pins(call.stack_pointer);
  PieceLists lists;
  if (!lists.make(pins, count + 1)) return -ENOMEM;
  Cursor cursor(pieces, count);
  for (uint64_t done = 0;;) {
    uint64_t at = position + done, limit = std::max(pin_limit() / 2, 2 * kPageSize) - at % kPageSize;
    size_t n = cursor.next(lists.from, shape.vector ? count : 1, limit);
    uint64_t wanted = total_bytes(lists.from, n);
    if (wanted == 0) return done > 0 ? static_cast<long>(done) : issue(call);
    Pins target(call.stack_pointer);
    target.add(reinterpret_cast<void*>(at), wanted, shape.write);
    long r = transfer_part(call, shape, lists, n, done);
    if (r < 0) return done > 0 ? static_cast<long>(done) : r;
    done += static_cast<uint64_t>(r);
    cursor.advance(static_cast<uint64_t>(r));
    if (static_cast<uint64_t>(r) < wanted) return static_cast<long>(done);
  }
}

// Executes a call whose pieces are in a list of Farside's, in parts if it has more bytes than may be moved as a whole.
long transfer(const Call& call, const Shape& shape, const iovec* pieces, size_t count) {
  if (!shape.vector && !shape.write && call.arg[2] < 0) return issue(call);
  uint64_t total = std::min(total_bytes(pieces, count), kMaxTransfer), whole = whole_bytes(call, shape, total);
  if (whole == 0) return refusal(call);
  Pins pins(call.stack_pointer);
  PieceLists lists;
  if (!lists.make(pins, count + 1)) return -ENOMEM;
  Cursor cursor(pieces, count);
  for (uint64_t done = 0;;) {
    size_t n = cursor.next(lists.from, count, std::min(whole, total - done));
    uint64_t wanted = total_bytes(lists.from, n);
    if (n == 0) lists.from[n++] = {count > 0 ? pieces[0].iov_base : nullptr, 0};
    long r = transfer_part(call, shape, lists, n, done);
    if (r < 0) return done > 0 ? static_cast<long>(done) : r;
    done += static_cast<uint64_t>(r);
    cursor.advance(static_cast<uint64_t>(r));
    if (static_cast<uint64_t>(r) < wanted || done >= total || !should_continue(call, shape, done))
      return static_cast<long>(done);
  }
}

long single_call(const Call& call, const Shape& shape) {
  auto* buffer = reinterpret_cast<void*>(call.arg[1]);
  auto bytes = static_cast<uint64_t>(call.arg[2]);
  if (!touches_far(buffer, bytes)) {
    return is_socket_call(call) && is_far(reinterpret_cast<void*>(call.arg[4])) ? table_call(call) : issue(call);
  }
  if (bytes > pin_limit()) {
    iovec piece = {buffer, bytes};
    return call.arg[2] < 0 ? issue(call) : transfer(call, shape, &piece, 1);
  }
  Pins pins(call.stack_pointer);
  pins.add(buffer, bytes, !shape.write);
  if (is_socket_call(call)) pin_address(pins, call, shape);
  return issue(call);
}

long vector_call(const Call& call, const Shape& shape) {
  auto* program = reinterpret_cast<const iovec*>(call.arg[1]);
  auto count = static_cast<size_t>(call.arg[2]);
  if (count == 0 || count > IOV_MAX || !is_readable(program, count * sizeof(iovec), call.stack_pointer))
    return issue(call);
  if (!is_far(program) && !any_far(program, count)) return issue(call);
  Pins pins(call.stack_pointer);
  PieceLists lists;
  if (!lists.make(pins, count)) return -ENOMEM;
  memcpy(lists.from, program, count * sizeof(iovec));
  if (has_invalid_piece(lists.from, count)) return issue(part_of(call, shape, lists.from, count, 0));
  return transfer(call, shape, lists.from, count);
}

// The buffers of a call as a list. They are in this process's memory if they could be used.
struct ProgramPieces {
  ProgramPieces(const Call& call, const Shape& shape)
      : one{reinterpret_cast<void*>(call.arg[1]), static_cast<size_t>(call.arg[2])},
        list(shape.vector ? reinterpret_cast<const iovec*>(call.arg[1]) : &one),
        count(shape.vector ? static_cast<size_t>(call.arg[2]) : 1) {}
  ProgramPieces(const ProgramPieces&) = delete;
  ProgramPieces& operator=(const ProgramPieces&) = delete;

  iovec one;
  const iovec* list;
  size_t count;
};

// A transfer that may access the program's own memory through a file: its position is a far address.
bool own_memory_call(const Call& call, const Shape& shape, long* result) {
  long position = is_positioned(call, shape) ? call.arg[shape.offset_arg] : own_memory_position(file_of(call));
  if (!is_far(reinterpret_cast<void*>(position)) || !is_own_memory(file_of(call))) return false;
  ProgramPieces pieces(call, shape);
  if (pieces.count > IOV_MAX || !is_readable(pieces.list, pieces.count * sizeof(iovec), call.stack_pointer))
    return false;
  *result = own_memory_transfer(call, shape, pieces.list, pieces.count, static_cast<uint64_t>(position));
  return true;
}

long as_the_program_sees(const Call& call, const Shape& shape, long read) {
  ProgramPieces pieces(call, shape);
  long position = is_positioned(call, shape) ? call.arg[shape.offset_arg] : -1;
  return read_of_own_status(file_of(call), position, pieces.list, pieces.count, read);
}

bool may_be_own_memory(const Call& call, const Shape& shape) {
  return shape.offset_arg >= 0 ? is_far(reinterpret_cast<void*>(call.arg[shape.offset_arg])) : seeks_own_memory();
}

}  // namespace

bool transfer_call(const Call& call, long* result) {
  Shape shape;
  if (!shape_of(call.number, &shape)) return message_call(call, result);
  if (may_be_own_memory(call, shape) && own_memory_call(call, shape, result)) return true;
  *result = shape.vector ? vector_call(call, shape) : single_call(call, shape);
  if (*result > 0 && !shape.write && !is_socket_call(call)) *result = as_the_program_sees(call, shape, *result);
  // The file's position was a far address that no lseek has set.
  if (*result == -EIO && is_own_memory(file_of(call))) own_memory_call(call, shape, result);
  return true;
}

}  // namespace farside::preload
