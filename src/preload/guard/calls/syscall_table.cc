#include "preload/guard/calls/syscall_table.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <utime.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "preload/guard/calls/near_pieces.h"

namespace farside::preload {
namespace {

constexpr uint64_t kLargestBlock = 64 * kKiB;  // of memory whose size is not known
constexpr uint64_t kLargestStructure = 256;    // of these bytes, words may be pointers
constexpr uint64_t kLowest = 65536;            // address; a smaller argument is a number

// One argument: what it points to.
struct Arg {
  enum Kind : uint8_t { kNone, kString, kIn, kOut, kInOut, kAny };
  Kind kind = kNone;
  uint8_t count_arg = 0;  // 1-based argument that multiplies `bytes`; 0: fixed size
  uint16_t bytes = 0;
  uint8_t shift = 0;        // `bytes` are for so many of what the argument counts, as a power of two
  uint8_t extra = 0;        // beyond what is counted
  bool by_pointer = false;  // count_arg points to the count, 4 bytes
  bool by_result = false;   // the kernel writes as much as the call's result counts
  uint64_t pointed = 0;     // bytes that a pointer in the memory may refer to; 0: it has no pointers
};

constexpr Arg no() { return {}; }
constexpr Arg str() { return {Arg::kString}; }
constexpr Arg in(size_t bytes) { return {Arg::kIn, 0, static_cast<uint16_t>(bytes)}; }
constexpr Arg out(size_t bytes) { return {Arg::kOut, 0, static_cast<uint16_t>(bytes)}; }
constexpr Arg inout(size_t bytes) { return {Arg::kInOut, 0, static_cast<uint16_t>(bytes)}; }
constexpr Arg counted(Arg::Kind kind, int arg, size_t unit) {
  return {kind, static_cast<uint8_t>(arg), static_cast<uint16_t>(unit)};
}
constexpr Arg in_n(int arg, size_t unit = 1) { return counted(Arg::kIn, arg, unit); }
constexpr Arg out_n(int arg, size_t unit = 1) { return counted(Arg::kOut, arg, unit); }
constexpr Arg inout_n(int arg, size_t unit = 1) { return counted(Arg::kInOut, arg, unit); }
// Room for what the argument counts; the result says how much of it was written.
constexpr Arg got_n(int arg, size_t unit = 1) {
  Arg a = counted(Arg::kOut, arg, unit);
  a.by_result = true;
  return a;
}
// A bit for each of what the argument counts, in whole words.
constexpr Arg bits(Arg::Kind kind, int arg) { return {kind, static_cast<uint8_t>(arg), 8, 6}; }
constexpr Arg in_bits(int arg) { return bits(Arg::kIn, arg); }
constexpr Arg out_bits(int arg) { return bits(Arg::kOut, arg); }
constexpr Arg inout_bits(int arg) { return bits(Arg::kInOut, arg); }
// A byte for each page of what the argument counts.
constexpr Arg out_per_page(int arg) { return {Arg::kOut, static_cast<uint8_t>(arg), 1, kPageShift}; }
// What the argument counts, after a message's type.
constexpr Arg in_message(int arg) { return {Arg::kIn, static_cast<uint8_t>(arg), 1, 0, sizeof(long)}; }
constexpr Arg out_message(int arg) { return {Arg::kOut, static_cast<uint8_t>(arg), 1, 0, sizeof(long)}; }
// As many bytes as the argument points to.
constexpr Arg sized_by(int arg) {
  Arg a = counted(Arg::kInOut, arg, 1);
  a.by_pointer = true;
  return a;
}
constexpr Arg pointing(Arg a, uint64_t bytes) {
  a.pointed = bytes;
  return a;
}
// What has pointers to memory, or a list of pages.
constexpr Arg pointers(Arg a) { return pointing(a, kLargestBlock); }
constexpr Arg pages(Arg a) { return pointing(a, 1); }
constexpr Arg nested(size_t bytes) { return pointers(inout(bytes)); }
// Depends on other arguments: the largest plausible structure, with pointers.
constexpr Arg any() { return {Arg::kAny}; }

struct CallDescription {
  bool known = false;
  bool points = false;  // structures of the call, which may be near, have pointers
  Arg arg[6];
};

constexpr long kCalls = 512;
constexpr size_t kSockaddr = sizeof(sockaddr_storage);

struct Table {
  CallDescription description[kCalls] = {};
  constexpr void set(long number, Arg a = {}, Arg b = {}, Arg c = {}, Arg d = {}, Arg e = {}, Arg f = {}) {
    if (description[number].known) throw "described twice";  // does not compile
    CallDescription& call = description[number] = {true, false, {a, b, c, d, e, f}};
    for (const Arg& arg : call.arg) call.points = call.points || arg.pointed > 0 || arg.kind == Arg::kAny;
  }
};

constexpr Table make_table() {
  Table t;
#define CALL(number, name, ...) t.set(number __VA_OPT__(, ) __VA_ARGS__);
#include "preload/guard/calls/system_calls.inc"
#undef CALL
  return t;
}

constexpr Table kTable = make_table();

uint64_t bytes_of(const Arg& spec, const Call& call) {
  if (spec.count_arg == 0) return spec.bytes;
  long count = call.arg[spec.count_arg - 1];
  if (spec.by_pointer) {
    auto* place = reinterpret_cast<const uint32_t*>(count);
    count = place && is_readable(place, sizeof *place, call.stack_pointer) ? *place : 0;
  }
  if (count < 0 || (count == 0 && spec.extra == 0)) return 0;
  uint64_t unit = uint64_t{1} << spec.shift;
  return spec.bytes * (align_up(static_cast<uint64_t>(count), unit) >> spec.shift) + spec.extra;
}

void pin_any(Pins& pins, const void* address) {
  pin_block(pins, address, kLargestBlock);
  uint64_t in_page = kPageSize - number(address) % kPageSize;
  uint64_t bytes = is_readable(address, kLargestStructure, pins.stack_pointer()) ? kLargestStructure
                                                                                 : std::min(in_page, kLargestStructure);
  pin_pointed(pins, address, bytes, kLargestBlock);
}

// The arguments of a call that the kernel gets instead of the program's.
class NearArguments {
 public:
  explicit NearArguments(const Call& call) : call_(call), near_(call), pins_(call.stack_pointer) {}

  // If some of the memory is not mapped, the kernel will return EFAULT.
  long bring(int index, const Arg& spec) {
    auto* address = reinterpret_cast<char*>(call_.arg[index]);
    if (spec.kind == Arg::kNone || number(address) < kLowest) return 0;
    if (spec.kind == Arg::kAny) return pin_any(pins_, address), 0;
    if (!touches_far(address, spec.kind == Arg::kString ? 1 : kLargestBlock)) {
      if (spec.pointed > 0) pin_pointed(pins_, address, bytes_of(spec, call_), spec.pointed);
      return 0;
    }
    if (spec.kind == Arg::kString) return pins_.add_string(address), 0;
    uint64_t bytes = bytes_of(spec, call_);
    if (bytes <= pin_limit()) pins_.add(address, bytes, spec.kind != Arg::kIn);
    else if (long error = copy(index, spec, address, bytes)) return error;
    if (spec.pointed > 0) pin_pointed(pins_, address, bytes, spec.pointed);
    return 0;
  }
  const Call& near() const { return near_; }
  // After the call: stores what the kernel has written in copies.
  long finish(const CallDescription& description, long result) const {
    for (int i = 0; i < 6 && result >= 0; i++) {
      if (!copies_[i]) continue;
      uint64_t bytes = from_[i].iov_len, written = static_cast<uint64_t>(result) * description.arg[i].bytes;
      if (description.arg[i].by_result && written < bytes) bytes = written;
      if (copies_[i]->store(0, 1, bytes) < bytes) return -EFAULT;
    }
    return result;
  }

 private:
  long copy(int index, const Arg& spec, void* address, uint64_t bytes) {
    Use use = spec.kind == Arg::kIn ? Use::kIn : spec.by_result ? Use::kOut : Use::kInOut;
    from_[index] = {address, bytes < kMaxTransfer ? bytes : kMaxTransfer};
    copies_[index].emplace(pins_, use);
    if (long error = copies_[index]->take(&from_[index], &to_[index], 1)) return error;
    near_.arg[index] = reinterpret_cast<long>(to_[index].iov_base);
    return 0;
  }

  const Call& call_;
  Call near_;
  Pins pins_;
  iovec from_[6], to_[6];
  std::optional<NearPieces> copies_[6];
};

constexpr CallDescription kUnknown = {true, true, {any(), any(), any(), any(), any(), any()}};

bool has_far_argument(const Call& call) {
  for (long argument : call.arg) {
    if (is_far(reinterpret_cast<void*>(argument))) return true;
  }
  return false;
}

const CallDescription& description_of(long number) {
  return number >= 0 && number < kCalls && kTable.description[number].known ? kTable.description[number] : kUnknown;
}

}  // namespace

// The address may be a number by chance, and a pointer in a structure anything.
void pin_pointed(Pins& pins, const void* structure, uint64_t bytes, uint64_t pointed) {
  auto begin = align_up(reinterpret_cast<uint64_t>(structure), alignof(void*));
  auto end = reinterpret_cast<uint64_t>(structure) + bytes;
  uint64_t left = std::max(pin_limit(), kLargestBlock);
  if (bytes < sizeof(void*) || !is_readable(structure, bytes, pins.stack_pointer())) return;
  for (uint64_t at = begin; at + sizeof(void*) <= end && left > 0; at += sizeof(void*)) {
    const void* target = *reinterpret_cast<void* const*>(at);
    if (!is_far(target)) continue;
    pin_block(pins, target, std::min(pointed, left));
    left -= std::min(pointed, left);
  }
}

void pin_block(Pins& pins, const void* address, uint64_t bytes) {
  // If the memory is read-only, the kernel cannot write it either.
  if (!pins.add(address, bytes, true)) pins.add(address, bytes, false);
}

long table_call(const Call& call, long (*issue_pinned)(const Call&)) {
  const CallDescription& description = description_of(call.number);
  if (!description.points && !has_far_argument(call)) return issue_pinned(call);
  NearArguments arguments(call);
  for (int i = 0; i < 6; i++) {
    if (long error = arguments.bring(i, description.arg[i])) return error;
  }
  return arguments.finish(description, issue_pinned(arguments.near()));
}

}  // namespace farside::preload
