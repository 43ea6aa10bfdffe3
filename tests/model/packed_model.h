// A model of a page that a client uses while the server compresses it (docs/internals/compression.md,
// src/packed/packed_pages.h, src/server/memory/packer.h), at the granularity of single atomic operations and of halves
// of the page, which are read and written one after the other.
//
// The client executes a list of operations: W writes the page, P its second half, R reads it, D discards it. The packer
// may start at any time: that a page must be cold only saves work. Room in the pool that the packer has released may be
// overwritten with another page at once. A page that moves in the pool may get the other of two forms, in which its
// bytes mean something else. The overflow file is a part of the pool here, from which the packer may bring a page back
// to the memory file.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenPacking : uint8_t {
  kNothing,
  kNoCheckAfterRead,       // a reader does not look at the word again
  kWritersDoNotWait,       // for the packer that is freeing the page
  kFreesWithoutClaim,      // the packer frees the page while the word is kPacking
  kNoWritingState,         // a writer makes the word kRaw before it writes
  kClaimsBeforeUnpacking,  // a writer of a part reads the pool after the word has changed
  kNotesUseWhilePunching,  // a reader changes the word of a page that the packer is freeing
  kMovesWithoutClaim,      // a move replaces the word whatever it is
  kReturnsAreNotCounted,   // a reader does not see that the packer has brought the page back meanwhile
  kReturnsWithoutClaim,    // the packer writes to the memory file while the word is kPacked
  kComparesPositionsOnly   // a reader takes a page that has left a place and come back for one that stayed
};

struct PackingScenario {
  const char* operations = "WR";
  unsigned packs = 1, moves = 0;
  BrokenPacking broken = BrokenPacking::kNothing;
  unsigned returns = 0;
};

class PackedModel {
 public:
  // Other: writes to room in the pool that is free.
  static constexpr unsigned kClient = 0, kPack = 1, kMove = 2, kScan = 3, kOther = 4, kRepack = 5, kReturn = 6,
                            kActors = 7;
  static constexpr unsigned kSlots = 2;
  static constexpr uint8_t kGarbage = 99, kZstdBytes = 0x40;

  enum class Where : uint8_t { kRaw, kPacking, kPunching, kPacked, kWriting };
  enum class Step : uint8_t { kLoad, kFirst, kSecond, kCheck, kClaim, kBringBack, kStoreFirst, kStoreSecond, kEnd };
  enum class Packing : uint8_t {
    kIdle,
    kFirst,
    kSecond,
    kStore,
    kClaim,
    kPunch,
    kPublish,
    kMoveStore,
    kMoveClaim,
    kReturnFirst,
    kReturnSecond,
    kCount,
    kReturned
  };
  struct Word {
    Where where = Where::kRaw;
    uint8_t slot = 0, version = 0;  // version 0: never written
    uint8_t zstd = 0, used = 0;     // in the pool: its form, and whether it was read
    bool operator==(const Word&) const = default;
    bool is_in_pool() const { return where == Where::kPunching || where == Where::kPacked; }
    bool is_at_place_of(const Word& other) const {
      return is_in_pool() && other.is_in_pool() && slot == other.slot && version == other.version && zstd == other.zstd;
    }
  };
  struct State {
    Word word;
    uint8_t raw[2] = {};
    uint8_t pool[kSlots][2] = {};
    uint8_t used[kSlots] = {};
    // The client.
    uint8_t operation = 0, value = 0;
    uint8_t expected[2] = {};
    Step step = Step::kLoad;
    Word seen;
    uint8_t got[2] = {}, returned = 0;  // returned: the count of returns when it loaded the word
    // The packer.
    Packing packing = Packing::kIdle;
    uint8_t copy[2] = {}, target = 0, place = 0;          // place: the slot that holds the page, plus 1
    uint8_t packs = 0, moves = 0, returns = 0, zstd = 0;  // zstd: what it is making
    Word before;                                          // of what it is moving
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit PackedModel(const PackingScenario& scenario) : scenario_(scenario) {}
  State start() const { return {}; }
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State&) const { return nullptr; }
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenPacking rule) const { return scenario_.broken == rule; }
  char operation(const State& s) const { return scenario_.operations[s.operation]; }
  bool step_client(State& s, const char** wrong) const;
  void read_half(State& s, unsigned half) const;
  void check_read(State& s, const char** wrong) const;
  bool load(State& s) const;
  void claim(State& s) const;
  void end(State& s) const;
  bool step_pack(State& s) const;
  void claim_packed(State& s) const;
  static uint8_t encoded(uint8_t value, uint8_t zstd) { return zstd ? value ^ kZstdBytes : value; }
  bool start_move(State& s, bool other_form) const;
  bool step_move(State& s) const;
  bool start_return(State& s) const;
  bool step_return(State& s) const;
  bool is_undisturbed(const State& s) const {
    return s.returned == s.returns || is_broken(BrokenPacking::kReturnsAreNotCounted);
  }
  bool scan(State& s) const;
  bool overwrite_free(State& s) const;
  static int free_slot(const State& s);

  PackingScenario scenario_;
};

}  // namespace farside::model
