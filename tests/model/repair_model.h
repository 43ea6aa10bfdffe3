// A model of the repair of a slab while it is written (docs/internals/replicas.md, src/remote/repair.h), at the
// granularity of single atomic operations and messages.
//
// The slab has two pages, and each writer writes one of them several times; no page has two writes in flight, as in the
// pager. After each write its writer reads the page. Servers 0 and 1 may be holders at the start; server 2 is the one
// that gets the new copy. Where server 0 drains, the new copy takes its place, and it is emptied. Servers are lost at
// any time. Where numbers are reused, another server, which is empty, gets number 0 when no slab names it any more.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenRepair {
  kNothing,
  kNoQuietStart,     // a page is copied while writes that began before are in flight
  kNoCheckAtTheEnd,  // writes that began during the copy are not detected
  kLoadsBefore,      // a writer reads the holders before it is counted
  kEndsAtOnce,       // a write is counted as ended when it is sent
  kReadsTooEarly,    // the new copy is read before it is complete
  kJoinsTooLate,     // writes go to the new copy only when it is complete
  kEmptiesTooEarly,  // the server that drains is emptied while it is a holder
  kEmptiesAtOnce,    // it is emptied while writes that began before are in flight
  kKeepsOldReads,    // a read counts though the servers of the slab have changed since it was sent
  kTrustsNumbers,    // a write goes to the server that has a number when its channel is opened
  kReusesTooEarly,   // the number is reused while the slab names it
};

struct RepairScenario {
  uint8_t holders = 1;  // a set of servers
  unsigned writes = 1;  // of each page
  unsigned losses = 0;  // of servers, at most
  bool drains = false;  // server 0, which is a holder
  bool reuses = false;  // its number, if it is lost
  BrokenRepair broken = BrokenRepair::kNothing;
};

class RepairModel {
 public:
  static constexpr unsigned kWriters = 2, kServers = 3, kNew = 2;
  // Steps of the writers; the delivery of a writer's message to a server; a writer's read from a server; the repair;
  // its message to the new server; the loss of a server; the reuse of a number.
  static constexpr unsigned kDeliver = kWriters, kRead = kDeliver + kWriters * kServers,
                            kRepair = kRead + kWriters * kServers, kDeliverCopy = kRepair + 1, kLose = kDeliverCopy + 1,
                            kReuse = kLose + kServers, kActors = kReuse + 1;

  enum class Write : uint8_t { kCount, kLoad, kOpen, kSend, kWait, kEnd, kRead, kReading, kCheck, kDone };
  enum class Repair : uint8_t {
    kJoin,
    kEnded,
    kBegun,
    kReadFirst,
    kReadSecond,
    kSend,
    kWait,
    kCheck,
    kPublish,
    kEndedAgain,
    kBegunAgain,
    kEmpty,
    kDone
  };
  struct Writer {
    Write pc = Write::kCount;
    uint8_t value = 0;                                // of the last write
    uint8_t targets = 0, sent = 0, acknowledged = 0;  // sets of servers; sent: the message is on its way
    uint8_t ended = 0;                                // counted as ended
    uint8_t from = 0, got = 0, seen_version = 0;      // of a read: the server and its reply
    uint8_t seen_reused = 0;
  };
  struct State {
    Writer writers[kWriters];
    uint8_t stored[kServers][kWriters] = {};  // the value of each page on each server
    uint8_t holders = 0, joining = 0, version = 0, lost = 0, losses = 0;
    uint8_t begun = 0, ended = 0;
    Repair repair = Repair::kJoin;
    uint8_t seen_ended = 0, seen_begun = 0, copy[kWriters] = {}, copy_sent = 0;
    uint8_t reused = 0;         // number 0
    uint8_t emptied = 0;        // server 0
    uint8_t program_ended = 0;  // since no holder was left
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit RepairModel(const RepairScenario& scenario) : scenario_(scenario) {}
  State start() const;
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State&) const { return nullptr; }
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenRepair rule) const { return scenario_.broken == rule; }
  bool step_writer(State& s, unsigned i, const char** wrong) const;
  bool conclude(State& s, Writer& w) const;
  bool deliver(State& s, unsigned writer, unsigned server) const;
  bool read(State& s, unsigned writer, unsigned server) const;
  bool step_read(const State& s, unsigned i, const char** wrong, Writer* w) const;
  bool step_repair(State& s) const;
  bool step_copy(State& s) const;
  void publish(State& s) const;
  bool step_emptying(State& s) const;
  bool lose(State& s, unsigned server) const;
  bool reuse(State& s) const;

  RepairScenario scenario_;
};

}  // namespace farside::model
