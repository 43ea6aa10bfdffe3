// Where the content of a page of a region is: one word for each page, in memory that the server and a client share.
//
//    63                    25 24      15 14      3 2     0
//    +-----------------------+----------+---------+-------+
//    | position in pool / 8  |  epoch   |  bytes  | state |
//    +-----------------------+----------+---------+-------+
//
//    kRaw       in the memory file. epoch: of the last access, 0: never written; bytes: 1 if it cannot be compressed
//    kPacking   as kRaw; the packer reads it, and gives up if a client makes it kWriting, or by a read kRaw
//    kPunching  in the pool; the packer is freeing the page in the memory file. Writers wait
//    kPacked    in the pool, at `position`, in `bytes` bytes. epoch: a version
//    kWriting   in the memory file; a client or the server is writing it
//
// State changes (docs/internals/compression.md; tests/model/packed_model):
//
//             write              end of write
//    any* ------------> kWriting ------------> kRaw        *: not kPunching
//             packer              packer                packer
//    kRaw ------------> kPacking ----------> kPunching ---------> kPacked ---+ moved in the pool
//      ^                   |                                        ^--------+
//      +-------------------+ read
#pragma once
#include <cstdint>

namespace farside::packed {

enum class State : uint8_t { kRaw = 0, kPacking = 1, kPunching = 2, kPacked = 3, kWriting = 4 };

class PackedWord {
 public:
  static constexpr uint32_t kFirstEpoch = 1, kLastEpoch = 1023, kEpochs = 1023;

  constexpr PackedWord() = default;
  explicit constexpr PackedWord(uint64_t value) : value_(value) {}
  static constexpr PackedWord in_memory(State state, uint32_t epoch, bool incompressible = false) {
    return PackedWord(static_cast<uint64_t>(state) | uint64_t{incompressible} << kBytesShift |
                      uint64_t{epoch} << kEpochShift);
  }
  static constexpr PackedWord in_pool(State state, uint64_t position, uint32_t bytes, uint32_t version) {
    return PackedWord(static_cast<uint64_t>(state) | uint64_t{bytes} << kBytesShift | uint64_t{version} << kEpochShift |
                      position / 8 << kPositionShift);
  }

  uint64_t value() const { return value_; }
  State state() const { return static_cast<State>(value_ & 7); }
  bool is(State state) const { return this->state() == state; }
  bool is_in_pool() const { return is(State::kPunching) || is(State::kPacked); }
  uint32_t bytes() const { return static_cast<uint32_t>(value_ >> kBytesShift) & 0xfff; }
  uint32_t epoch() const { return static_cast<uint32_t>(value_ >> kEpochShift) & kLastEpoch; }
  uint64_t position() const { return (value_ >> kPositionShift) * 8; }
  bool is_incompressible() const { return bytes() == 1; }
  PackedWord with(State state) const { return PackedWord((value_ & ~uint64_t{7}) | static_cast<uint64_t>(state)); }
  // Whether the content is at the same place in the pool as that of another word.
  bool is_at_place_of(PackedWord other) const {
    return is_in_pool() && other.is_in_pool() && with(State::kPacked).value_ == other.with(State::kPacked).value_;
  }
  bool operator==(const PackedWord&) const = default;

 private:
  static constexpr unsigned kBytesShift = 3, kEpochShift = 15, kPositionShift = 25;
  uint64_t value_ = 0;
};
static_assert(sizeof(PackedWord) == 8);
static_assert(PackedWord::in_pool(State::kPacked, 8, 0, 0) == PackedWord(uint64_t{1} << 25 | 3));
static_assert(PackedWord::in_memory(State::kWriting, PackedWord::kLastEpoch) == PackedWord(uint64_t{1023} << 15 | 4));

}  // namespace farside::packed
