// For the source files of ObjectSpace: waits that permit a fork, reads of several objects, and changes of an object's
// owner.
#pragma once
#include <optional>

#include "base/log.h"
#include "farside/fiber.h"
#include "objects/object_space.h"

namespace farside::objects {

// While it lives, no fault suspends the fiber: another fiber of this worker would find the thread's log in the middle
// of a change.
class NoSwitch {
 public:
  NoSwitch() { farside_fiber_hold(); }
  ~NoSwitch() { farside_fiber_release(); }
  NoSwitch(const NoSwitch&) = delete;
  NoSwitch& operator=(const NoSwitch&) = delete;
};

// While it lives, the caller is not busy, so a fork may happen while it waits for the server: a fiber that forks cannot
// wait for another fiber of its thread.
class ObjectSpace::Waiting {
 public:
  explicit Waiting(ObjectSpace& space)
      : space_(space), scopes_(Epochs::here()), was_busy_(scopes_.busy.load(std::memory_order_relaxed)) {
    scopes_.busy.store(false, std::memory_order_release);
  }
  ~Waiting() {
    if (was_busy_) Busy::enter(space_, scopes_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  ObjectSpace& space_;
  ScopeRecord& scopes_;
  bool was_busy_;
};

// Sub-page reads of one request, and a buffer for them.
struct ObjectSpace::ReadBuffer {
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
struct ObjectSpace::Batch : ReadBuffer {
  static constexpr size_t kMaxBytes = 16 * kKiB;
  struct Object {
    uint64_t* owner;
    PtrWord word;
    unsigned kind;   // of its header
    ObjectLog* log;  // where it is moved; nullptr: a log of the calling thread
    Emptied* from;   // its segment, if the evacuator moves it; nullptr: the program needs it, and it must be moved
  };

  explicit Batch(bool non_temporal = false) : used_once(non_temporal) {}
  bool is_full() const { return count == pager::SubpageRead::kMaxPerRequest || bytes + kPageSize > kMaxBytes; }
  void add(const Object& object) {
    objects[count] = object;
    ReadBuffer::add(object.word.address(), object.word.bytes());
  }

  const bool used_once;  // for the log of non-temporal objects
  Object objects[pager::SubpageRead::kMaxPerRequest];
};

// Executes change(), which changes an object's owner or the record of it, while no thread moves the object. False: the
// word has changed; try again.
template <typename Change>
bool ObjectSpace::change_owned(uint64_t* owner, PtrWord word, Change change) {
  if (word.is_moving()) {
    wait_while_moving(owner);
    return false;
  }
  PageIndex page = table_.index_of(word.address());
  Segment& segment = table_[page];
  switch (segment.word().state()) {
    case SegmentState::kClosed:
      if (!hold(segment, page)) return false;
      [[fallthrough]];
    case SegmentState::kOpen:
    case SegmentState::kClosing:
      change();
      return true;
    case SegmentState::kEmptying: {
      NoSwitch no_switch;
      segment.lock_owners();
      bool same = load_owner(owner) == word;
      if (same) change();
      segment.unlock_owners();
      return same;
    }
    default:
      if (load_owner(owner) == word)
        die("a far pointer refers to no object (word {:#x}): the object was destroyed twice, or the pointer's bytes "
            "were copied",
            word.bits());
      return false;
  }
}

}  // namespace farside::objects
