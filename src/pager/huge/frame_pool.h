// Huge frames of 2 MiB that are free, and the addresses at which they are prepared. A frame moves between a slot of the
// pool and a huge page of far space by UFFDIO_MOVE, which exchanges one entry of the page tables: nothing is copied,
// zeroed or freed. A fresh huge page costs 1 to 12 ms on a virtual machine, so frames are kept while streams use them.
//
// A frame counts as 512 frames of the budget (frames.h), from when it is made until it is dropped, wherever it is;
// while it is free, as frames that are ready.
//
// Thread-safe. All but open() is async-signal-safe.
#pragma once
#include <atomic>
#include <bit>

#include "base/near.h"
#include "base/sync.h"
#include "pager/huge/huge_table.h"
#include "pager/pages/frames.h"
#include "pager/space/far_space.h"

namespace farside::pager {

using Slot = int;  // of the pool; -1: none

class FramePool : public NearObject {
 public:
  FramePool(FarSpace& space, Frames& frames) : space_(space), frames_(frames) {}
  ~FramePool();

  // Reserves addresses. False: the kernel lacks what the pool needs, and there are no frames. Other threads may run.
  bool open();
  bool is_possible() const { return space_.moves_frames(); }
  bool is_open() const { return slots_.load(std::memory_order_acquire) != nullptr; }
  std::byte* address_of(Slot slot) const {
    return slots_.load(std::memory_order_relaxed) + static_cast<uint64_t>(slot) * kHugeBytes;
  }

  // A free frame with any content, or -1.
  Slot take();
  // The slot has a frame that is free.
  void put(Slot slot);
  // A slot without a frame, to which one is moved; or -1.
  Slot take_empty();
  // The slot has no frame any more: it was moved away.
  void put_empty(Slot slot);
  // Takes a new frame, of zeros, from the kernel; -1 if the budget or the kernel has none. With `spare`, only if so
  // many frames of the budget stay free. Takes milliseconds.
  Slot grow(uint64_t spare);
  // The same, for a frame that is free then. False: none.
  bool prepare(uint64_t spare);
  // Gives the slot's frame back to the kernel and the budget.
  void drop(Slot slot);
  // Drops a free frame. False: there is none.
  bool drop_free();
  // As drop(), for a slot whose frame was given to pages one by one: the budget counts them.
  void drop_copied(Slot slot);

  size_t free() const { return static_cast<size_t>(std::popcount(free_.load(std::memory_order_relaxed))); }

  // How many free frames the streams need. A stream that takes one, or finds none, asks for one to be made ready;
  // evictors do that (wants_frame). The demand ends when no stream has asked for a while.
  void ask() { asked_.store(now_ns(), std::memory_order_relaxed); }
  void ask_more() {
    ask();
    uint64_t most = frames_.limit() / kHugePages / kMinShare;
    unsigned now = target_.load(std::memory_order_relaxed);
    if (now < kMaxReady && now < most) target_.store(now + 1, std::memory_order_relaxed);
  }
  void end_demand() { asked_.store(0, std::memory_order_relaxed); }
  size_t target() const { return is_in_demand() ? target_.load(std::memory_order_relaxed) : 0; }
  bool wants_frame() const { return is_open() && !has_given_up() && free() < target(); }
  // Whether frames of single pages that become free would help to make the frame that is wanted.
  bool wants_pages() const { return wants_frame() && may_grow(); }
  // The frame that is wanted cannot be had. For a while none is; those of huge pages that leave are kept, though.
  void give_up() { gave_up_.store(now_ns(), std::memory_order_relaxed); }
  // Whether a stream may have a frame now or soon.
  bool is_hopeful() const { return free() > 0 || !has_given_up(); }

  // In the child of a fork, which has none of the frames. The addresses are reserved anew by open().
  void reset_in_child();

 private:
  static constexpr unsigned kSlots = 64;
  static constexpr unsigned kMinReady = 1, kMaxReady = 16;
  static constexpr uint64_t kMinShare = 32;  // of near memory; more is not kept ready
  static constexpr uint64_t kDemandNs = 500'000'000, kRetryNs = 1'000'000'000, kGiveUpNs = 10'000'000;

  bool is_in_demand() const {
    uint64_t asked = asked_.load(std::memory_order_relaxed);
    return asked != 0 && now_ns() - asked < kDemandNs;
  }
  bool has_given_up() const {
    uint64_t gave_up = gave_up_.load(std::memory_order_relaxed);
    return gave_up != 0 && now_ns() - gave_up < kGiveUpNs;
  }
  // Not while the kernel has no huge pages. It may have to move others for one.
  bool may_grow() const {
    uint64_t refused = refused_.load(std::memory_order_relaxed);
    return refused == 0 || now_ns() - refused >= kRetryNs;
  }
  Slot make(uint64_t spare);
  static Slot take_bit(std::atomic<uint64_t>& bits);
  static void put_bit(std::atomic<uint64_t>& bits, Slot slot);
  void close();

  FarSpace& space_;
  Frames& frames_;
  // kSlots huge pages, watched: the kernel moves frames to watched memory only. Set last by open().
  std::atomic<std::byte*> slots_{nullptr};
  std::byte* scratch_ = nullptr;    // as many, not watched, in which the frame of a slot is made
  std::atomic<uint64_t> free_{0};   // bit of a slot: has a free frame
  std::atomic<uint64_t> empty_{0};  // has no frame. In neither: the slot is in use
  std::atomic<uint64_t> asked_{0};  // when a stream asked last; 0: never
  std::atomic<unsigned> target_{kMinReady};
  std::atomic<uint64_t> refused_{0};  // when the kernel had no huge page
  std::atomic<uint64_t> gave_up_{0};  // when the evictors found none
};

}  // namespace farside::pager
