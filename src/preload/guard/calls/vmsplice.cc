#include "preload/guard/calls/vmsplice.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <cerrno>
#include <climits>

#include "preload/guard/calls/near_pieces.h"

namespace farside::preload {

long vmsplice_call(const Call& call) {
  auto* program = reinterpret_cast<const iovec*>(call.arg[1]);
  auto count = static_cast<size_t>(call.arg[2]);
  if (count > IOV_MAX || !is_readable(program, count * sizeof(iovec), call.stack_pointer)) return issue(call);
  Pins pins(call.stack_pointer);
  PieceLists lists;
  if (!lists.make(pins, count)) return -ENOMEM;
  bool reads = (os::fcntl(static_cast<int>(call.arg[0]), F_GETFL, 0) & O_ACCMODE) == O_RDONLY;
  size_t taken = has_invalid_piece(program, count) ? 0 : Cursor(program, count).next(lists.from, count, kMaxWhole);
  if (!any_far(lists.from, taken) && !is_far(program)) return issue(call);
  NearPieces near(pins, reads ? Use::kOut : Use::kIn);
  if (long error = near.take(lists.from, lists.to, taken, kPageSize)) return error;
  Call part = call;
  part.arg[1] = reinterpret_cast<long>(lists.to);
  part.arg[2] = static_cast<long>(taken);
  long r = issue(part);
  return r > 0 ? static_cast<long>(near.store(0, taken, static_cast<uint64_t>(r))) : r;
}

}  // namespace farside::preload
