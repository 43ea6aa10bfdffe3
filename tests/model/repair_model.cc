#include "repair_model.h"

namespace farside::model {
namespace {

uint8_t bit(unsigned i) { return static_cast<uint8_t>(1u << i); }

}  // namespace

RepairModel::State RepairModel::start() const {
  State s;
  s.holders = scenario_.holders;
  return s;
}

bool RepairModel::step(State& s, unsigned actor, const char** wrong) const {
  if (s.program_ended) return false;
  if (actor < kDeliver) return step_writer(s, actor, wrong);
  if (actor < kRead) return deliver(s, (actor - kDeliver) / kServers, (actor - kDeliver) % kServers);
  if (actor < kRepair) return read(s, (actor - kRead) / kServers, (actor - kRead) % kServers);
  if (actor == kRepair) return step_repair(s);
  if (actor < kLose) {
    if (!s.copy_sent) return false;
    s.copy_sent = 0;
    for (unsigned i = 0; i < kWriters; i++) s.stored[kNew][i] = s.copy[i];
    return true;
  }
  return actor == kReuse ? reuse(s) : lose(s, actor - kLose);
}

// PoolChannel: submit_write, and what follows until the result is known.
bool RepairModel::step_writer(State& s, unsigned i, const char** wrong) const {
  Writer& w = s.writers[i];
  auto load = [&] {
    bool joins = !is_broken(BrokenRepair::kJoinsTooLate);
    w.targets = static_cast<uint8_t>((s.holders | (joins ? s.joining : 0)) & ~s.lost);
    w.seen_reused = s.reused;
  };
  switch (w.pc) {
    case Write::kCount:
      if (is_broken(BrokenRepair::kLoadsBefore)) load();
      else s.begun++;
      w.ended = 0;
      w.pc = Write::kLoad;
      return true;
    case Write::kLoad:
      if (is_broken(BrokenRepair::kLoadsBefore)) s.begun++;
      else load();
      w.pc = scenario_.reuses ? Write::kOpen : Write::kSend;
      return true;
    case Write::kOpen: {
      bool changed = s.reused != w.seen_reused && !is_broken(BrokenRepair::kTrustsNumbers);
      w.pc = changed ? Write::kLoad : Write::kSend;
      w.targets = static_cast<uint8_t>(changed ? 0 : w.targets & ~s.lost);
      w.seen_reused = 0;
      return true;
    }
    case Write::kSend:
      w.value++;
      w.acknowledged = 0;
      w.sent = static_cast<uint8_t>(w.targets & ~s.lost);
      if (is_broken(BrokenRepair::kEndsAtOnce)) s.ended++, w.ended = 1;
      w.pc = Write::kWait;
      return true;
    case Write::kWait:
      if (w.sent != 0) return false;
      return conclude(s, w);
    case Write::kEnd:
      if (!w.ended) s.ended++;
      w.targets = w.acknowledged = w.ended = 0;
      w.pc = Write::kRead;
      return true;
    case Write::kRead:
      if ((s.holders & ~s.lost) != 0) return false;  // read() does it
      s.program_ended = 1;
      return true;
    case Write::kReading:
    case Write::kCheck:
      return step_read(s, i, wrong, &w);
    case Write::kDone:
      return false;
  }
  *wrong = "no such step";
  return true;
}

// The server replies; then the writer looks whether the reply counts.
bool RepairModel::step_read(const State& s, unsigned i, const char** wrong, Writer* w) const {
  if (w->pc == Write::kReading) {
    w->got = s.stored[w->from][i];
    w->pc = Write::kCheck;
    return true;
  }
  bool moved = s.version != w->seen_version && !is_broken(BrokenRepair::kKeepsOldReads);
  bool counts = !(s.lost & bit(w->from)) && !moved;
  if (counts && w->got != w->value) *wrong = "a read returns an older value";
  if (counts) w->pc = w->value < scenario_.writes ? Write::kCount : Write::kDone;
  else w->pc = Write::kRead;
  w->from = w->got = w->seen_version = 0;
  return true;
}

bool RepairModel::conclude(State& s, Writer& w) const {
  if ((s.holders & ~s.lost) == 0) s.program_ended = 1;
  w.pc = Write::kEnd;
  return true;
}

bool RepairModel::deliver(State& s, unsigned writer, unsigned server) const {
  Writer& w = s.writers[writer];
  if (!(w.sent & bit(server))) return false;
  w.sent = static_cast<uint8_t>(w.sent & ~bit(server));
  w.acknowledged |= bit(server);
  s.stored[server][writer] = w.value;
  return true;
}

bool RepairModel::read(State& s, unsigned writer, unsigned server) const {
  Writer& w = s.writers[writer];
  uint8_t from = is_broken(BrokenRepair::kReadsTooEarly) ? s.holders | s.joining : s.holders;
  if (w.pc != Write::kRead || !(from & ~s.lost & bit(server))) return false;
  w.from = static_cast<uint8_t>(server);
  w.seen_version = s.version;
  w.pc = Write::kReading;
  return true;
}

// Repair: the thread that makes the new copy.
bool RepairModel::step_repair(State& s) const {
  bool gone = s.repair != Repair::kJoin && s.repair != Repair::kDone && (s.lost & bit(kNew));
  if (gone) {  // it gives up
    s.version++;
    s.joining = s.copy_sent = s.seen_begun = s.seen_ended = 0;
    s.repair = Repair::kDone;
    return true;
  }
  switch (s.repair) {
    case Repair::kJoin:
      if (s.lost & bit(kNew)) return false;
      s.joining = bit(kNew);
      s.version++;
      s.repair = Repair::kEnded;
      return true;
    case Repair::kEnded:
      s.seen_ended = s.ended;
      s.repair = Repair::kBegun;
      return true;
    case Repair::kBegun: {
      s.seen_begun = s.begun;
      bool quiet = s.seen_begun == s.seen_ended || is_broken(BrokenRepair::kNoQuietStart);
      s.repair = quiet ? Repair::kReadFirst : Repair::kEnded;
      return true;
    }
    case Repair::kPublish:
      publish(s);
      return true;
    case Repair::kEndedAgain:
    case Repair::kBegunAgain:
    case Repair::kEmpty:
      return step_emptying(s);
    case Repair::kDone:
      return false;
    default:
      return step_copy(s);
  }
}

void RepairModel::publish(State& s) const {
  bool is_early = scenario_.drains && is_broken(BrokenRepair::kEmptiesTooEarly) && !s.emptied;
  s.seen_begun = s.seen_ended = 0;
  if (is_early) {
    s.emptied = 1;
    s.stored[0][0] = s.stored[0][1] = 0;
    return;
  }
  s.holders |= bit(kNew);
  if (scenario_.drains) s.holders = static_cast<uint8_t>(s.holders & ~bit(0));
  s.joining = 0;
  s.version++;
  s.repair = scenario_.drains && !s.emptied ? Repair::kEndedAgain : Repair::kDone;
}

// The server that drains is no holder any more.
bool RepairModel::step_emptying(State& s) const {
  switch (s.repair) {
    case Repair::kEndedAgain:
      s.seen_ended = s.ended;
      s.repair = Repair::kBegunAgain;
      return true;
    case Repair::kBegunAgain: {
      bool quiet = s.begun == s.seen_ended || is_broken(BrokenRepair::kEmptiesAtOnce);
      s.seen_ended = 0;
      s.repair = quiet ? Repair::kEmpty : Repair::kEndedAgain;
      return true;
    }
    default:
      s.stored[0][0] = s.stored[0][1] = 0;
      s.emptied = 1;
      s.repair = Repair::kDone;
      return true;
  }
}

bool RepairModel::step_copy(State& s) const {
  auto source = static_cast<uint8_t>(s.holders & ~s.lost);
  switch (s.repair) {
    case Repair::kReadFirst:
    case Repair::kReadSecond: {
      if (source == 0) return false;  // the slab is lost
      unsigned page = s.repair == Repair::kReadSecond;
      s.copy[page] = s.stored[__builtin_ctz(source)][page];
      s.repair = page ? Repair::kSend : Repair::kReadSecond;
      return true;
    }
    case Repair::kSend:
      s.copy_sent = 1;
      s.repair = Repair::kWait;
      return true;
    case Repair::kWait:
      if (s.copy_sent) return false;
      s.copy[0] = s.copy[1] = 0;
      s.repair = Repair::kCheck;
      return true;
    default: {
      bool quiet = s.begun == s.seen_begun || is_broken(BrokenRepair::kNoCheckAtTheEnd);
      s.repair = quiet ? Repair::kPublish : Repair::kEnded;
      return true;
    }
  }
}

// Its messages are lost with it.
bool RepairModel::lose(State& s, unsigned server) const {
  bool exists = ((scenario_.holders | bit(kNew)) & bit(server)) != 0;
  if (!exists || s.losses == scenario_.losses || (s.lost & bit(server))) return false;
  s.losses++;
  s.lost |= bit(server);
  for (Writer& w : s.writers) {
    w.sent = static_cast<uint8_t>(w.sent & ~bit(server));
    if (w.pc == Write::kSend) w.targets = static_cast<uint8_t>(w.targets & ~bit(server));  // its channel is opened
  }
  if (server == kNew) s.copy_sent = 0;
  for (uint8_t& value : s.stored[server]) value = 0;
  return true;
}

// SlabPlacement::retire_lost, PoolServers::add: number 0 is lost, and others hold the slab.
bool RepairModel::reuse(State& s) const {
  bool is_repaired = s.repair == Repair::kJoin || s.repair == Repair::kDone;
  if (!scenario_.reuses || s.reused || !(s.lost & bit(0)) || !is_repaired) return false;
  if ((s.holders & bit(0)) && !is_broken(BrokenRepair::kReusesTooEarly)) {
    auto others = static_cast<uint8_t>(s.holders & ~s.lost);
    if (others == 0) return false;
    s.holders = others;
    s.version++;
    return true;
  }
  s.lost = static_cast<uint8_t>(s.lost & ~bit(0));
  s.reused = 1;
  return true;
}

// A holder that is not lost has every write that has ended, and a server that was emptied has nothing.
const char* RepairModel::check(const State& s) const {
  bool is_empty = s.stored[0][0] == 0 && s.stored[0][1] == 0;
  bool must_be_empty = s.emptied || s.reused;
  if (must_be_empty && !(s.holders & bit(0)) && !is_empty) return "a server that holds nothing has data";
  for (unsigned server = 0; server < kServers; server++) {
    if (!(s.holders & ~s.lost & bit(server))) continue;
    for (unsigned i = 0; i < kWriters; i++) {
      const Writer& w = s.writers[i];
      bool complete = w.pc >= Write::kEnd;
      if (complete && s.stored[server][i] != w.value) return "a holder misses a write";
    }
  }
  return nullptr;
}

bool RepairModel::done(const State& s) const {
  if (s.program_ended) return true;
  bool repaired = s.repair == Repair::kDone || (s.lost & bit(kNew)) || (s.holders & ~s.lost) == 0;
  for (const Writer& w : s.writers) repaired &= w.pc == Write::kDone;
  return repaired;
}

std::string RepairModel::describe(const State& s, unsigned actor) const {
  std::string text = "actor " + std::to_string(actor) + ": holders " + std::to_string(s.holders) + ", joining " +
                     std::to_string(s.joining) + ", lost " + std::to_string(s.lost) + ", begun " +
                     std::to_string(s.begun) + ", ended " + std::to_string(s.ended) + ", repair " +
                     std::to_string(static_cast<int>(s.repair));
  for (const Writer& w : s.writers)
    text += ", writer " + std::to_string(static_cast<int>(w.pc)) + " value " + std::to_string(w.value);
  return text;
}

}  // namespace farside::model
