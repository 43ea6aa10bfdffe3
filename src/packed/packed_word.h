// Where the content of a page of a region is: one word for each page, in memory that the server and a client share.
//
//    63                    25 24      15 14      3 2     0
//    +-----------------------+----------+---------+-------+
//    | position in pool / 8  |  epoch   |  bytes  | state |    in the memory file: position 0; in the overflow file:
//    +-----------------------+----------+---------+-------+    bit 63 and its slot, no bytes
//                  in the pool: 24     23    22 21   20   15
//                              +------+------+-------+------+
//                              | zstd | mark | moves | used |  used: epoch of the last access / 16
//                              +------+------+-------+------+
//
//    kRaw       in the memory file. epoch: of the last access, 0: never written; bytes: codecs that cannot compress it
//    kPacking   as kRaw; the packer reads it, and gives up if a client makes it kWriting, or by a read kRaw
//    kPunching  in the pool or the overflow file; the packer is freeing the page in the memory file, or bringing it
//               back there. Writers wait, and readers leave the word
//    kPacked    in the pool, at `position`, in `bytes` bytes, by LZ4 or by zstd. mark: zstd does not pay; or of a page
//               that zstd has packed: it was used twice in a minute. Or as it is in a slot of the overflow file; mark:
//               it was used twice there
//    kWriting   in the memory file; a client or the server is writing it
//
// State changes (docs/internals/compression.md; tests/model/packed_model):
//
//             write              end of write
//    any* ------------> kWriting ------------> kRaw        *: not kPunching
//             packer              packer                packer
//    kRaw ------------> kPacking ----------> kPunching <--------> kPacked ---+ moved in the pool or to the overflow
//     ^ ^                  |                     |                  ^--------+ file, or packed by the other codec; used
//     | +------------------+ read                |                             by a reader
//     +------------------------------------------+ packer: brought back from the overflow file
#pragma once
#include <cstdint>

namespace farside::packed {

enum class State : uint8_t { kRaw = 0, kPacking = 1, kPunching = 2, kPacked = 3, kWriting = 4 };

class PackedWord {
 public:
  static constexpr uint32_t kFirstEpoch = 1, kLastEpoch = 1023, kEpochs = 1023;
  static constexpr uint32_t kEpochsOfAge = 16, kAges = 64;  // in the pool, time is counted in these

  constexpr PackedWord() = default;
  explicit constexpr PackedWord(uint64_t value) : value_(value) {}
  // refusals: how many codecs cannot compress it.
  static constexpr PackedWord in_memory(State state, uint32_t epoch, uint32_t refusals = 0) {
    return PackedWord(static_cast<uint64_t>(state) | uint64_t{refusals} << kBytesShift |
                      uint64_t{epoch} << kEpochShift);
  }
  static constexpr PackedWord in_pool(State state, uint64_t position, uint32_t bytes, uint32_t moves,
                                      bool is_zstd = false) {
    return PackedWord(static_cast<uint64_t>(state) | uint64_t{bytes} << kBytesShift |
                      uint64_t{moves % kMoves} << kMovesShift | uint64_t{is_zstd} << kZstdShift |
                      position / 8 << kPositionShift);
  }

  // In the overflow file.
  static constexpr PackedWord in_overflow(State state, uint64_t slot, uint32_t moves) {
    return PackedWord(in_pool(state, slot * 8, 0, moves).value_ | kOverflowBit);
  }

  uint64_t value() const { return value_; }
  State state() const { return static_cast<State>(value_ & 7); }
  bool is(State state) const { return this->state() == state; }
  // In the pool or in the overflow file.
  bool is_stored() const { return is(State::kPunching) || is(State::kPacked); }
  bool is_in_overflow() const { return is_stored() && (value_ & kOverflowBit) != 0; }
  uint32_t bytes() const { return field(kBytesShift, 0xfff); }
  uint64_t position() const { return (value_ >> kPositionShift) * 8; }
  uint64_t slot() const { return (value_ & ~kOverflowBit) >> kPositionShift; }
  PackedWord with(State state) const { return PackedWord((value_ & ~uint64_t{7}) | static_cast<uint64_t>(state)); }

  // In the memory file.
  uint32_t epoch() const { return field(kEpochShift, kLastEpoch); }
  uint32_t refusals() const { return bytes(); }

  // In the pool.
  bool is_zstd() const { return field(kZstdShift, 1); }
  bool is_marked() const { return field(kMarkShift, 1); }
  uint32_t moves() const { return field(kMovesShift, kMoves - 1); }
  // Since the last use, in units of kEpochsOfAge. Wraps.
  uint32_t age(uint32_t now) const { return (now / kEpochsOfAge + kAges - field(kEpochShift, kAges - 1)) % kAges; }
  PackedWord marked(bool mark = true) const {
    return PackedWord((value_ & ~(uint64_t{1} << kMarkShift)) | uint64_t{mark} << kMarkShift);
  }
  PackedWord used_at(uint32_t epoch) const {
    return PackedWord((value_ & ~(uint64_t{kAges - 1} << kEpochShift)) | uint64_t{epoch / kEpochsOfAge} << kEpochShift);
  }
  // As another word of the pool says it.
  PackedWord used_as(PackedWord other) const { return used_at(other.field(kEpochShift, kAges - 1) * kEpochsOfAge); }
  // Whether the content is at the same place as that of another word, in the same form.
  bool is_at_place_of(PackedWord other) const { return is_stored() && other.is_stored() && place() == other.place(); }
  bool operator==(const PackedWord&) const = default;

 private:
  static constexpr unsigned kBytesShift = 3, kEpochShift = 15, kMovesShift = 21, kMarkShift = 23, kZstdShift = 24,
                            kPositionShift = 25;
  static constexpr uint32_t kMoves = 4;
  static constexpr uint64_t kOverflowBit = uint64_t{1} << 63;

  constexpr uint32_t field(unsigned shift, uint32_t mask) const {
    return static_cast<uint32_t>(value_ >> shift) & mask;
  }
  PackedWord place() const { return with(State::kPacked).marked(false).used_at(0); }

  uint64_t value_ = 0;
};
static_assert(sizeof(PackedWord) == 8);
static_assert(PackedWord::kLastEpoch / PackedWord::kEpochsOfAge == PackedWord::kAges - 1);
static_assert(PackedWord::in_pool(State::kPacked, 8, 0, 0) == PackedWord(uint64_t{1} << 25 | 3));
static_assert(PackedWord::in_pool(State::kPacked, 0, 1, 5, true) ==
              PackedWord(uint64_t{1} << 24 | 1 << 21 | 1 << 3 | 3));
static_assert(PackedWord::in_memory(State::kWriting, PackedWord::kLastEpoch) == PackedWord(uint64_t{1023} << 15 | 4));

}  // namespace farside::packed
