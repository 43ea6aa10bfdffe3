// Several objects that are read together, and moved together.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/near.h"
#include "objects/object_log.h"
#include "objects/ptr_word.h"
#include "pager/pager.h"

namespace farside::objects {

// An emptying segment on which the evacuator works.
struct EmptiedSegment {
  PageIndex page;
  uint64_t hot_lines;     // objects on these lines are moved to `hot`, the others to `cold`
  ObjectLog *hot, *cold;  // of its data structure
  bool busy;              // some objects could not be moved now
};

// Sub-page reads of one request, and a buffer for them.
struct ReadBuffer {
  ~ReadBuffer() {
    if (buffer) near_free(buffer, room);
  }
  void add(uint64_t address, size_t size) {
    reads[count++] = {address, static_cast<uint32_t>(size), nullptr};
    bytes += align_up(size, kCacheLine);
  }
  void make_room() {
    if (bytes > room) {
      if (buffer) near_free(buffer, room);
      buffer = static_cast<std::byte*>(near_alloc(room = bytes));
    }
    std::byte* to = buffer;
    for (size_t i = 0; i < count; i++) {
      reads[i].to = to;
      to += align_up(reads[i].bytes, kCacheLine);
    }
  }
  // The bytes read, or, if the page is not far, the page itself.
  const std::byte* content(size_t i) const {
    return reads[i].read ? reads[i].to : reinterpret_cast<const std::byte*>(reads[i].address);
  }
  void clear() { count = bytes = 0; }

  size_t count = 0, bytes = 0, room = 0;
  std::byte* buffer = nullptr;
  pager::SubpageRead reads[pager::SubpageRead::kMaxPerRequest];
};

// Objects that are moved together, all of them marked.
struct MovedBatch : ReadBuffer {
  static constexpr size_t kMaxBytes = 16 * kKiB;
  struct Object {
    uint64_t* owner;
    PtrWord word;
    unsigned kind;   // of its header
    ObjectLog* log;  // where it is moved; nullptr: a log of the calling thread
    EmptiedSegment*
        from;  // its segment, if the evacuator moves it; nullptr: the program needs it, and it must be moved
  };

  explicit MovedBatch(bool non_temporal = false) : used_once(non_temporal) {}
  bool is_full() const { return count == pager::SubpageRead::kMaxPerRequest || bytes + kPageSize > kMaxBytes; }
  void add(const Object& object) {
    objects[count] = object;
    ReadBuffer::add(object.word.address(), object.word.bytes());
  }

  const bool used_once;  // for the log of non-temporal objects
  Object objects[pager::SubpageRead::kMaxPerRequest];
};

}  // namespace farside::objects
