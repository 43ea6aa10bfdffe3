#include "preload/guard/calls/near_pieces.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace farside::preload {
namespace {

constexpr size_t kMaxPinned = 32;  // pieces of a call; each takes a record
constexpr size_t kGroup = 32;      // pieces that are stored by one system call

std::byte* bytes_at(const void* p, uint64_t offset) { return static_cast<std::byte*>(const_cast<void*>(p)) + offset; }

// Reads memory of which no page is far and absent. The kernel does it, so that memory that is not mapped is an error.
uint64_t read_present(void* to, const void* from, uint64_t bytes) {
  iovec local = {to, bytes}, remote = {const_cast<void*>(from), bytes};
  long r = os::call(SYS_process_vm_readv, os::getpid(), &local, 1, &remote, 1, 0);
  if (r == -ENOSYS || r == -EPERM) {  // a container forbids it
    memcpy(to, from, bytes);
    return bytes;
  }
  return r < 0 ? 0 : static_cast<uint64_t>(r);
}

bool is_accessible(uint64_t at) {
  pager::Pager* pager = guard_pager();
  pager::PageWord word =
      pager->table().contains(at) ? pager->table().word(at) : pager::PageWord(pager::PageWord::kForeign);
  char byte;
  if (word.is_foreign()) return read_present(&byte, reinterpret_cast<void*>(at), 1) == 1;
  uint64_t kept_out = word.bits() & (pager::PageWord::kFreed | pager::PageWord::kSealed);
  return !word.is(pager::PageState::kUnmapped) && kept_out == 0;
}

// How far the program may access the range.
uint64_t accessible_bytes(const void* address, uint64_t bytes) {
  uint64_t begin = number(address), end = begin + bytes;
  for (uint64_t at = begin; at < end; at = align_down(at, kPageSize) + kPageSize) {
    if (!is_accessible(at)) return at - begin;
  }
  return bytes;
}

// Whether this is the part of the program's stack that is certainly mapped.
bool is_on_stack(uint64_t begin, uint64_t bytes, uint64_t stack_pointer) {
  constexpr uint64_t kNearStack = 64 * kKiB;
  uint64_t end = stack_pointer + kNearStack;
  return begin >= stack_pointer && begin < end && bytes <= end - begin;
}

// A part of what is copied: its pages fit into near memory together with those of other threads.
uint64_t part_limit() { return std::max(pin_limit() / 4, 4 * kPageSize); }

// Writes a group of pieces, which the caller has pinned. As read_present.
uint64_t write_present(const iovec* from, const iovec* to, size_t count, uint64_t bytes) {
  long r = os::call(SYS_process_vm_writev, os::getpid(), from, count, to, count, 0);
  if (r == -ENOSYS || r == -EPERM) {
    for (size_t i = 0; i < count; i++) memcpy(to[i].iov_base, from[i].iov_base, to[i].iov_len);
    return bytes;
  }
  return r < 0 ? 0 : static_cast<uint64_t>(r);
}

}  // namespace

uint64_t total_bytes(const iovec* pieces, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; i++) total += pieces[i].iov_len;
  return total;
}

bool any_far(const iovec* pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (touches_far(pieces[i].iov_base, pieces[i].iov_len)) return true;
  }
  return false;
}

uint64_t read_program(void* to, const void* from, uint64_t bytes, uint64_t stack_pointer) {
  if (!touches_far(from, bytes)) return read_present(to, from, bytes);
  for (uint64_t done = 0; done < bytes;) {
    uint64_t part = std::min(bytes - done, part_limit());
    Pins pins(stack_pointer);
    const void* at = bytes_at(from, done);
    if (pins.add(at, part, false) && is_far(at) && is_far(bytes_at(at, part - 1))) {
      memcpy(bytes_at(to, done), at, part);
    } else {
      uint64_t read = read_present(bytes_at(to, done), at, part);
      if (read < part) return done + read;
    }
    done += part;
  }
  return bytes;
}

bool shares_memory(long number) {
  constexpr long kMemory = 1;  // KCMP_VM
  int own = os::getpid();
  return number == own || os::call(SYS_tgkill, own, number, 0) == 0 ||
         os::call(SYS_kcmp, own, number, kMemory, 0, 0) == 0;
}

bool is_readable(const void* address, uint64_t bytes, uint64_t stack_pointer) {
  uint64_t begin = number(address);
  if (is_on_stack(begin, bytes, stack_pointer)) return true;
  return begin + bytes >= begin && accessible_bytes(address, bytes) == bytes;
}

bool load_structure(void* to, const void* from, uint64_t bytes, uint64_t stack_pointer) {
  if (!is_on_stack(number(from), bytes, stack_pointer)) return read_program(to, from, bytes, stack_pointer) == bytes;
  memcpy(to, from, bytes);
  return true;
}

bool store_structure(void* to, const void* from, uint64_t bytes, uint64_t stack_pointer) {
  if (is_on_stack(number(to), bytes, stack_pointer)) {
    memcpy(to, from, bytes);
    return true;
  }
  Pins pins(stack_pointer);
  pins.add(to, bytes, true);
  iovec source = {const_cast<void*>(from), bytes}, target = {to, bytes};
  return write_present(&source, &target, 1, bytes) == bytes;
}

bool NearPieces::pin(const iovec* pieces, size_t count) {
  uint64_t bytes = 0;
  size_t far = 0;
  for (size_t i = 0; i < count; i++) {
    if (!touches_far(pieces[i].iov_base, pieces[i].iov_len)) continue;
    far++;
    bytes += pieces[i].iov_len;
    if (far > kMaxPinned || bytes > pin_limit() || 2 * far > Pins::room()) return false;
  }
  for (size_t i = 0; far > 0 && i < count; i++) pins_.add(pieces[i].iov_base, pieces[i].iov_len, use_ != Use::kIn);
  return true;
}

long NearPieces::take(const iovec* from, iovec* to, size_t count, uint64_t alignment) {
  from_ = from;
  to_ = to;
  memcpy(to, from, count * sizeof(iovec));
  if (alignment <= 512 && pin(from, count)) return 0;
  return copy(count, alignment);
}

// The places of the copies follow each other. The first piece with a fault is last: the page of the fault is the
// inaccessible one after all copies. The kernel reaches no piece after it.
long NearPieces::copy(size_t count, uint64_t alignment) {
  uint64_t room = 0;
  size_t end = count, faulty = count;
  for (size_t i = 0; i < end; i++) {
    const iovec& piece = from_[i];
    if (!touches_far(piece.iov_base, piece.iov_len)) continue;
    uint64_t good = accessible_bytes(piece.iov_base, piece.iov_len);
    if (good < piece.iov_len) faulty = i, end = i + 1;
    room += good + alignment;
  }
  room = align_up(room + kPageSize, kPageSize);
  std::byte* memory = pins_.map_near(room + kPageSize);
  if (!memory) {
    static std::atomic<bool> warned{false};
    if (!warned.exchange(true)) {
      log(LogLevel::kError,
          "out of memory: a system call on {} KiB of far memory needs as much near memory; raise the limit on virtual "
          "memory (ulimit -v)",
          room / kKiB);
    }
    return -ENOMEM;
  }
  copied_ = true;
  if (faulty < count) os::mprotect(memory + room, kPageSize, PROT_NONE);
  uint64_t next = number(memory);
  for (size_t i = 0; i < end; i++) {
    const iovec& piece = from_[i];
    if (!touches_far(piece.iov_base, piece.iov_len)) continue;
    uint64_t good = i == faulty ? accessible_bytes(piece.iov_base, piece.iov_len) : piece.iov_len;
    next += (number(piece.iov_base) - next) % alignment;
    auto* place = i == faulty ? memory + room - good : reinterpret_cast<std::byte*>(next);
    if (use_ != Use::kOut) read_program(place, piece.iov_base, good, pins_.stack_pointer());
    to_[i].iov_base = place;
    next += good;
  }
  return 0;
}

uint64_t NearPieces::store(size_t first, size_t end, uint64_t bytes) const {
  if (!copied_ || use_ == Use::kIn) return bytes;
  uint64_t stored = 0, offset = 0;
  for (size_t i = first; i < end && stored < bytes;) {
    Pins pins(pins_.stack_pointer());
    iovec near[kGroup], program[kGroup];
    size_t n = 0;
    uint64_t group = 0;
    for (; i < end && n < kGroup && stored + group < bytes && group < part_limit(); n++) {
      uint64_t part = std::min({from_[i].iov_len - offset, bytes - stored - group, part_limit() - group});
      near[n] = {bytes_at(to_[i].iov_base, offset), part};
      program[n] = {bytes_at(from_[i].iov_base, offset), part};
      bool direct = near[n].iov_base == program[n].iov_base;  // the kernel has stored it
      if (direct) near[n].iov_len = program[n].iov_len = 0;
      else pins.add(program[n].iov_base, part, true);
      group += part;
      offset += part;
      if (offset == from_[i].iov_len) i++, offset = 0;
    }
    uint64_t wanted = total_bytes(program, n), written = wanted > 0 ? write_present(near, program, n, wanted) : 0;
    if (written < wanted) return stored + written;
    stored += group;
  }
  return stored;
}

}  // namespace farside::preload
