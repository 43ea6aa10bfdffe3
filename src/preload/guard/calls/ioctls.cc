#include "preload/guard/calls/ioctls.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/calls/syscall_table.h"
#include "preload/heap/kernel_memory.h"

namespace farside::preload {
namespace {

// Requests without an encoded size have structures of up to 512 bytes (HDIO_GET_IDENTITY). What follows a structure
// belongs to it in some requests (FS_IOC_FIEMAP, device mapper, KVM), as far as its pages are mapped.
constexpr uint64_t kLargest = 16 * kKiB;
constexpr uint64_t kLargestPointed = 64 * kKiB;  // as for the table of system calls

// Of so many bytes of the structure, words may be pointers.
uint64_t bytes_with_pointers(unsigned long request) {
  constexpr unsigned kTerminal = 0x54, kNetwork = 0x89;
  constexpr uint64_t kIfreq = 40, kLargestOld = 256;
  if (_IOC_SIZE(request) > 0) return _IOC_SIZE(request);
  if (_IOC_TYPE(request) == kTerminal) return 0;
  return _IOC_TYPE(request) == kNetwork ? kIfreq : kLargestOld;
}

// A request whose structure refers to more memory than others do: a pointer, and how many bytes it is for.
struct LongBuffer {
  unsigned long request;
  uint16_t bytes;    // of the structure
  uint16_t pointer;  // offsets in it
  uint16_t length;
  uint8_t length_bytes;
};
constexpr LongBuffer kLongBuffers[] = {
    {0x2285, 88, 24, 12, 4},      // SG_IO: sg_io_hdr
    {0x8912, 16, 8, 0, 4},        // SIOCGIFCONF: ifconf
    {0xc0484e41, 72, 24, 36, 4},  // NVME_IOCTL_ADMIN_CMD
    {0xc0484e43, 72, 24, 36, 4},  // NVME_IOCTL_IO_CMD
    {UFFDIO_COPY, 40, 8, 16, 8},  // the source
    {0x80108907, 16, 8, 0, 2},    // SIOCATTACHFILTER of old programs: sock_fprog
};

uint64_t word_at(const void* structure, size_t offset, size_t bytes) {
  uint64_t value = 0;
  memcpy(&value, static_cast<const char*>(structure) + offset, bytes);
  return value;
}

// Pins what the structure refers to.
void pin_buffers(Pins& pins, unsigned long request, const void* structure, uint64_t bytes, uint64_t stack_pointer) {
  for (const LongBuffer& one : kLongBuffers) {
    if (one.request != request || !is_readable(structure, one.bytes, stack_pointer)) continue;
    uint64_t length = word_at(structure, one.length, one.length_bytes);
    pin_block(pins, reinterpret_cast<void*>(word_at(structure, one.pointer, 8)), std::min(length, kMaxWhole));
    return;
  }
  pin_pointed(pins, structure, bytes, kLargestPointed);
}

constexpr unsigned long kUffdioMove = _IOWR(UFFDIO, 5, uint64_t[5]);  // Linux 6.8

// What the program watches by a userfaultfd of its own, or moves by that, is the kernel's alone from now on. False:
// there is nothing; the kernel would find the far space.
bool give_watched(unsigned long request, const void* structure, uint64_t stack_pointer) {
  uint64_t words[3] = {};  // uffdio_register: start, bytes, mode; uffdio_move: target, source, bytes
  bool is_move = request == kUffdioMove;
  if (request != UFFDIO_REGISTER && !is_move) return true;
  if (read_program(words, structure, sizeof words, stack_pointer) < sizeof words) return true;
  bool maps = !is_move && words[2] != UFFDIO_REGISTER_MODE_MISSING;
  return give_to_kernel(reinterpret_cast<void*>(words[is_move]), words[1 + is_move],
                        maps ? ZeroPages::kMapped : ZeroPages::kUnmapped);
}

}  // namespace

// The structure may be near and refer to far memory.
long ioctl_call(const Call& call) {
  auto request = static_cast<unsigned long>(static_cast<unsigned>(call.arg[1]));
  auto* structure = reinterpret_cast<void*>(call.arg[2]);
  constexpr long kLowest = 65536;  // below it the argument is a number
  if (call.arg[2] >= 0 && call.arg[2] < kLowest) return issue(call);
  bool is_there = give_watched(request, structure, call.stack_pointer);
  Pins pins(call.stack_pointer);
  if (is_far(structure)) pin_block(pins, structure, std::max<uint64_t>(_IOC_SIZE(request), kLargest));
  pin_buffers(pins, request, structure, bytes_with_pointers(request), call.stack_pointer);
  long result = issue(call);
  return result == -EBUSY && !is_there ? -EINVAL : result;
}

}  // namespace farside::preload
