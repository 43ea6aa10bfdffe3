// The space of a far file: which slot of the file holds which page of which process. A slot has the size of a page. The
// processes of a run share one file, and one space in shared memory; no process serves the others.
//
//   file   | header | slot | slot | ...           the content of pages, encrypted if so requested
//   space  | header, regions | references of each slot | map of region 0 | map of region 1 | ...
//
// Word of a page in the map of a region; 0: the page reads as zeros and has no slot.
//
//   63                    32 31                      0
//   | slot                  | CRC-32C of the content  |
//
// References of a slot, 16 bits: 0: free. 1 .. 0x7fff: so many pages refer to it. 0x8000 + n: region n is writing to
// it.
//
// A write goes to a free slot, and the page's word is changed when it is complete. So a slot that a page refers to
// never changes, which is what makes a fork cheap: the child's map is a copy of the parent's, and every slot in it gets
// one reference more. Words and references are changed by atomic operations only, in an order that leaves nothing wrong
// if the process is killed in between; at worst a slot that was about to be freed is lost.
//
// A region is in use as long as a process holds a lock on its bytes of the space (F_SETLK: the kernel releases it at
// the end of the process, and children do not inherit it). Regions of processes that have ended are released by those
// that need their memory.
//
// Thread-safe. Async-signal-safe, except for create() and attach().
#pragma once
#include <atomic>
#include <bitset>
#include <memory>
#include <span>

#include "base/bits.h"
#include "base/near.h"
#include "base/status.h"
#include "base/sync.h"
#include "transport/file/xts.h"

namespace farside::transport {

using SlotNumber = uint32_t;

class SlotFile;

// The map of one process, as it is mapped in this one.
class FarRegion : public NearObject {
 public:
  ~FarRegion();
  unsigned id() const { return id_; }
  uint64_t bytes() const { return bytes_; }
  // False: its descriptor was closed, so that other processes took this one for dead and released its pages. Words
  // that were read before the call are then invalid.
  bool is_intact() const { return generation_.load(std::memory_order_acquire) == made_in_; }

  uint64_t word(uint64_t page) const { return words_[page].load(std::memory_order_acquire); }
  uint64_t exchange(uint64_t page, uint64_t word);

  static uint64_t make_word(SlotNumber slot, uint32_t crc) { return uint64_t{slot} << 32 | crc; }
  static SlotNumber slot_of(uint64_t word) { return static_cast<SlotNumber>(word >> 32); }
  static uint32_t crc_of(uint64_t word) { return static_cast<uint32_t>(word); }

  // The first page from `page` on that may have a word.
  uint64_t next(uint64_t page) const {
    while (page < pages() && !is_used(page)) page = align_down(page, kChunkPages) + kChunkPages;
    return page;
  }
  uint64_t pages() const { return bytes_ / kPageSize; }

 private:
  friend class SlotFile;
  static constexpr uint64_t kChunkPages = 512;  // for each bit of used_

  FarRegion(unsigned id, uint64_t bytes, std::byte* base, size_t mapped_bytes, const std::atomic<uint64_t>& generation);
  bool is_used(uint64_t page) const {
    uint64_t chunk = page / kChunkPages;
    return (used_[chunk / 64].load(std::memory_order_acquire) >> (chunk % 64) & 1) != 0;
  }

  const unsigned id_;
  const uint64_t bytes_;
  std::byte* const base_;
  const size_t mapped_bytes_;
  std::atomic<uint64_t>* const used_;  // one bit for each chunk of words
  std::atomic<uint64_t>* const words_;
  const std::atomic<uint64_t>& generation_;  // of the record
  const uint64_t made_in_;
};

class SlotFile : public NearObject {
 public:
  static constexpr unsigned kMaxRegions = 4096;
  static constexpr uint64_t kHeaderBytes = 256 * 1024;  // of the file: not used for pages

  struct Settings {
    uint64_t bytes;       // that are lent
    uint64_t file_bytes;  // with the header and spare_bytes()
    bool is_allocated;    // the file system, or the device, has provided all of it
    bool encrypts;
  };
  // Slots beyond those that are lent, since a page that is written has two for a while.
  static uint64_t spare_bytes(uint64_t lent);

  // A new space over an open file. Does not own the descriptor.
  static Result<std::unique_ptr<SlotFile>> create(int file_fd, const Settings& settings);
  // The space of the run, in a program that has inherited both descriptors. What an earlier program of this process
  // used is released.
  static Result<std::unique_ptr<SlotFile>> attach(int file_fd, int space_fd);
  ~SlotFile();

  int file_fd() const { return file_fd_; }
  int space_fd() const { return space_fd_; }
  const XtsCipher* cipher() const { return cipher_.get(); }  // nullptr: content is not encrypted
  uint64_t lent_bytes() const;
  uint64_t provided_bytes() const;  // of the file; what is behind was never written
  unsigned regions_in_use();

  // A region of this process. nullptr with the reason in *status.
  std::unique_ptr<FarRegion> add_region(uint64_t bytes, Status* status);
  // Raises the region's reservation; the file system has room for it afterwards. 0, -ENOMEM: the space is exhausted, or
  // -ENOSPC: the file system is.
  int reserve(const FarRegion& region, uint64_t bytes);
  void unreserve(const FarRegion& region, uint64_t bytes);
  // Releases a region of this process.
  void remove_region(std::unique_ptr<FarRegion> region);

  // A copy of the region for a forked child, which no one may change meanwhile. The child calls adopt; until then the
  // region is kept, by this process, for 10 s. -errno: there is no room.
  int copy_region(const FarRegion& region);
  // In the child. nullptr: too late.
  std::unique_ptr<FarRegion> adopt_region(unsigned id, Status* status);

  // Takes free slots for the region to write to, in few runs of neighbours. False: there are not so many.
  bool take_slots(const FarRegion& region, std::span<SlotNumber> slots);
  // The page refers to a slot that was taken. The slot of its previous word is released.
  void publish(FarRegion& region, uint64_t page, uint64_t word);
  void release(SlotNumber slot);                 // taken, or referred to
  void clear(FarRegion& region, uint64_t page);  // reads as zeros from now on
  void clear(FarRegion& region, uint64_t first, uint64_t end);

 private:
  struct Header;

  SlotFile(int file_fd, int space_fd) : file_fd_(file_fd), space_fd_(space_fd) {}
  Status map();
  bool lock(unsigned id, unsigned which, short type) const;
  bool is_locked(unsigned id) const;
  std::unique_ptr<FarRegion> map_region(unsigned id, uint64_t bytes, Status* status) const;
  int claim_record(uint64_t bytes) REQUIRES(regions_lock_);
  void end_hand_overs() REQUIRES(regions_lock_);
  unsigned release_abandoned() REQUIRES(regions_lock_);
  bool reclaim();
  void empty(FarRegion& region);
  void free_record(unsigned id);
  uint64_t reserved_bytes() const;
  int provide(uint64_t bytes);
  size_t find_slots(const FarRegion& region, std::span<SlotNumber> slots, size_t run, size_t patience);
  size_t take_run(const FarRegion& region, SlotNumber first, std::span<SlotNumber> slots);

  const int file_fd_, space_fd_;
  Header* header_ = nullptr;
  std::atomic<uint16_t>* references_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::unique_ptr<XtsCipher> cipher_;
  std::atomic<SlotNumber> next_{0};  // where the search for free slots continues

  Mutex regions_lock_;  // held also during changes of regions by this process
  struct HandedOver {
    unsigned id;
    uint64_t since_ns;
  };
  std::bitset<kMaxRegions> owned_ GUARDED_BY(regions_lock_);  // that this process has locked
  static constexpr unsigned kMaxHandedOver = 64;
  // Copies for children that may not have adopted them yet.
  HandedOver handed_over_[kMaxHandedOver] GUARDED_BY(regions_lock_);
  unsigned handed_over_count_ GUARDED_BY(regions_lock_) = 0;
};

}  // namespace farside::transport
