#include "packed_model.h"

namespace farside::model {

bool PackedModel::step(State& s, unsigned actor, const char** wrong) const {
  switch (actor) {
    case kClient:
      return step_client(s, wrong);
    case kPack:
      return step_pack(s);
    case kMove:
      return s.packing == Packing::kIdle ? start_move(s, false) : step_move(s);
    case kRepack:
      return start_move(s, true);
    case kReturn:
      return s.packing == Packing::kIdle ? start_return(s) : step_return(s);
    case kScan:
      return scan(s);
    default:
      return overwrite_free(s);
  }
}

// PackedPages::read, begin_write, end_write and discard.
bool PackedModel::step_client(State& s, const char** wrong) const {
  if (operation(s) == 0) return false;
  bool reads = operation(s) == 'R';
  switch (s.step) {
    case Step::kLoad:
      return load(s);
    case Step::kFirst:
    case Step::kSecond:
      read_half(s, s.step == Step::kSecond);
      if (s.step == Step::kFirst) s.step = Step::kSecond;
      else if (is_broken(BrokenPacking::kClaimsBeforeUnpacking) && !reads) s.step = Step::kBringBack;
      else s.step = Step::kCheck;
      return true;
    case Step::kCheck:
      if (reads) check_read(s, wrong);
      else s.step = s.word.is_at_place_of(s.seen) && is_undisturbed(s) ? Step::kClaim : Step::kLoad;
      return true;
    case Step::kClaim:
      claim(s);
      return true;
    case Step::kBringBack:
      s.raw[0] = s.got[0], s.raw[1] = s.got[1];
      s.step = Step::kStoreSecond;
      return true;
    case Step::kStoreFirst:
      s.raw[0] = operation(s) == 'D' ? 0 : s.value;
      s.step = Step::kStoreSecond;
      return true;
    case Step::kStoreSecond:
      s.raw[1] = operation(s) == 'D' ? 0 : s.value;
      s.step = Step::kEnd;
      return true;
    case Step::kEnd:
      end(s);
      return true;
  }
  return false;
}

bool PackedModel::load(State& s) const {
  bool reads = operation(s) == 'R';
  if (!reads && s.word.where == Where::kPunching && !is_broken(BrokenPacking::kWritersDoNotWait)) return false;
  s.seen = s.word;
  s.returned = s.returns;
  bool unpacks = s.seen.is_in_pool() && operation(s) == 'P' && !is_broken(BrokenPacking::kClaimsBeforeUnpacking);
  s.step = reads || unpacks ? Step::kFirst : Step::kClaim;
  return true;
}

void PackedModel::read_half(State& s, unsigned half) const {
  s.got[half] = s.seen.is_in_pool() ? encoded(s.pool[s.seen.slot][half], s.seen.zstd) : s.raw[half];
}

void PackedModel::check_read(State& s, const char** wrong) const {
  Word after = s.word;
  if (is_broken(BrokenPacking::kComparesPositionsOnly)) after.version = s.seen.version, after.zstd = s.seen.zstd;
  bool same_place = s.seen.is_in_pool() ? after.is_at_place_of(s.seen) : !s.word.is_in_pool();
  s.step = Step::kLoad;
  if ((!same_place || !is_undisturbed(s)) && !is_broken(BrokenPacking::kNoCheckAfterRead)) return;
  if (s.word.where == Where::kPacking) s.word.where = Where::kRaw;  // the page is in use
  bool notes = s.word.where == Where::kPacked || is_broken(BrokenPacking::kNotesUseWhilePunching);
  if (s.word.is_in_pool() && notes) s.word.used = 1;
  if (s.got[0] != s.expected[0] || s.got[1] != s.expected[1]) *wrong = "a read returns something else";
  s.seen = {};
  s.got[0] = s.got[1] = 0;
  s.operation++;
}

void PackedModel::claim(State& s) const {
  bool part = operation(s) == 'P';
  if (!(s.word == s.seen)) {
    s.step = Step::kLoad;
    return;
  }
  s.value++;
  s.word = {is_broken(BrokenPacking::kNoWritingState) ? Where::kRaw : Where::kWriting, 0, 1};
  if (!part) s.step = Step::kStoreFirst;
  else if (!s.seen.is_in_pool()) s.step = Step::kStoreSecond;
  else s.step = is_broken(BrokenPacking::kClaimsBeforeUnpacking) ? Step::kFirst : Step::kBringBack;
}

void PackedModel::end(State& s) const {
  bool discards = operation(s) == 'D';
  s.word = {Where::kRaw, 0, static_cast<uint8_t>(!discards)};
  if (operation(s) != 'P') s.expected[0] = discards ? 0 : s.value;
  s.expected[1] = discards ? 0 : s.value;
  s.step = Step::kLoad;
  s.seen = {};
  s.got[0] = s.got[1] = 0;
  s.operation++;
}

int PackedModel::free_slot(const State& s) {
  for (unsigned i = 0; i < kSlots; i++) {
    if (!s.used[i]) return static_cast<int>(i);
  }
  return -1;
}

// Packer::pack_page and free_packed.
bool PackedModel::step_pack(State& s) const {
  switch (s.packing) {
    case Packing::kIdle: {
      int slot = free_slot(s);
      if (s.word.where != Where::kRaw || s.word.version == 0 || s.packs == scenario_.packs || slot < 0) return false;
      s.packs++;
      s.word.where = Where::kPacking;
      s.target = static_cast<uint8_t>(slot);
      s.used[slot] = 1;
      s.zstd = s.packs % 2 == 0;
      s.packing = Packing::kFirst;
      return true;
    }
    case Packing::kFirst:
    case Packing::kSecond: {
      bool first = s.packing == Packing::kFirst;
      s.copy[!first] = s.raw[!first];
      s.packing = first ? Packing::kSecond : Packing::kStore;
      return true;
    }
    case Packing::kStore:
      for (unsigned half = 0; half < 2; half++) s.pool[s.target][half] = encoded(s.copy[half], s.zstd);
      s.copy[0] = s.copy[1] = 0;
      if (is_broken(BrokenPacking::kFreesWithoutClaim)) s.raw[0] = s.raw[1] = 0;
      s.packing = Packing::kClaim;
      return true;
    case Packing::kClaim:
      claim_packed(s);
      return true;
    case Packing::kPunch:
      s.raw[0] = s.raw[1] = 0;
      s.packing = Packing::kPublish;
      return true;
    case Packing::kPublish:
      if (s.word == s.before) s.word.where = Where::kPacked;
      s.before = {};
      s.packing = Packing::kIdle;
      return true;
    default:
      return false;
  }
}

void PackedModel::claim_packed(State& s) const {
  bool claimed = s.word.where == Where::kPacking;
  if (claimed) {
    if (s.place) s.used[s.place - 1] = 0;
    s.word = s.before = {Where::kPunching, s.target, 1, s.zstd};
    s.place = static_cast<uint8_t>(s.target + 1);
  } else {
    s.used[s.target] = 0;
  }
  s.target = 0;
  s.packing = claimed ? Packing::kPunch : Packing::kIdle;
}

// Packer::move_some and repack.
bool PackedModel::start_move(State& s, bool other_form) const {
  int slot = free_slot(s);
  bool may_move =
      s.packing == Packing::kIdle && s.place && s.word.where == Where::kPacked && s.word.slot == s.place - 1;
  if (!may_move || slot < 0 || s.moves == scenario_.moves) return false;
  s.moves++;
  s.target = static_cast<uint8_t>(slot);
  s.used[slot] = 1;
  s.before = s.word;
  s.zstd = s.word.zstd ^ other_form;
  s.packing = Packing::kMoveStore;
  return true;
}

bool PackedModel::step_move(State& s) const {
  switch (s.packing) {
    case Packing::kMoveStore:
      for (unsigned half = 0; half < 2; half++)
        s.pool[s.target][half] = encoded(encoded(s.pool[s.before.slot][half], s.before.zstd), s.zstd);
      s.packing = Packing::kMoveClaim;
      return true;
    case Packing::kMoveClaim: {
      bool moved = s.word == s.before || is_broken(BrokenPacking::kMovesWithoutClaim);
      s.used[moved ? s.before.slot : s.target] = 0;
      if (moved) {
        auto version = static_cast<uint8_t>(s.before.version % 3 + 1);
        s.word = {Where::kPacked, s.target, version, s.zstd, s.before.used};
        s.place = static_cast<uint8_t>(s.target + 1);
      }
      s.before = {};
      s.target = 0;
      s.packing = Packing::kIdle;
      return true;
    }
    default:
      return false;
  }
}

// Packer::bring_back.
bool PackedModel::start_return(State& s) const {
  bool may_return = s.place && s.word.where == Where::kPacked && s.word.slot == s.place - 1;
  if (!may_return || s.returns == scenario_.returns) return false;
  if (!is_broken(BrokenPacking::kReturnsWithoutClaim)) s.word.where = Where::kPunching;
  s.before = s.word;
  s.packing = Packing::kReturnFirst;
  return true;
}

bool PackedModel::step_return(State& s) const {
  switch (s.packing) {
    case Packing::kReturnFirst:
    case Packing::kReturnSecond: {
      bool first = s.packing == Packing::kReturnFirst;
      s.raw[!first] = encoded(s.pool[s.before.slot][!first], s.before.zstd);
      s.packing = first ? Packing::kReturnSecond : Packing::kCount;
      return true;
    }
    case Packing::kCount:
      s.returns++;
      s.packing = Packing::kReturned;
      return true;
    case Packing::kReturned:
      if (s.word == s.before) {
        s.word = {Where::kRaw, 0, 1};
        s.used[s.before.slot] = s.place = 0;
      }
      s.before = {};
      s.packing = Packing::kIdle;
      return true;
    default:
      return false;
  }
}

// Packer::scan_table_page: the page has left its room.
bool PackedModel::scan(State& s) const {
  bool left = s.place && !(s.word.is_in_pool() && s.word.slot == s.place - 1);
  if (!left || s.packing != Packing::kIdle) return false;
  s.used[s.place - 1] = 0;
  s.place = 0;
  return true;
}

bool PackedModel::overwrite_free(State& s) const {
  int slot = free_slot(s);
  if (slot < 0 || s.pool[slot][0] == kGarbage) return false;
  s.pool[slot][0] = s.pool[slot][1] = kGarbage;
  return true;
}

const char* PackedModel::check(const State& s) const {
  if (s.word.is_in_pool() && !s.used[s.word.slot]) return "the page is in room that is free";
  return nullptr;
}

bool PackedModel::done(const State& s) const { return operation(s) == 0 && s.packing == Packing::kIdle; }

std::string PackedModel::describe(const State& s, unsigned actor) const {
  auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  return "actor " + number(actor) + ": word " + number(s.word.where) + " slot " + number(s.word.slot) + ", raw " +
         number(s.raw[0]) + number(s.raw[1]) + ", operation " + number(s.operation) + " step " + number(s.step) +
         ", got " + number(s.got[0]) + number(s.got[1]) + ", packer " + number(s.packing) + " place " + number(s.place);
}

}  // namespace farside::model
