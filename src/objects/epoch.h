// Grace periods: when have all scopes ended that were open at some moment? As in RCU, readers only store to their own
// record; the waiting thread reads all records after a membarrier, which takes the place of the fences that readers
// omit (AIFM 5.3, "evacuator waiting phase").
//
// Why it is correct. A change is made, then the epoch is read, at the earliest when the change is seen: `since`. A
// scope that began with an epoch above `since` read an epoch that was raised after the change, so it sees the change. A
// scope that began with an older epoch is either seen in its record, because its store preceded the membarrier; or its
// first read followed the membarrier, and saw the change.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/log.h"
#include "base/near.h"
#include "base/sync.h"
#include "farside/object.h"
#include "objects/segment.h"

namespace farside::objects {

// A farside_scopes with the members that only the library uses. Never freed while the process lives; reused by another
// thread or fiber when its own has ended.
struct ScopeRecord : farside_scopes, NearObject {
  static constexpr unsigned kMaxHeld = 30;
  ScopeRecord* next = nullptr;
  std::atomic<bool> taken{true};
  uint64_t stopped = 0;           // structures whose moves it has stopped
  std::atomic<bool> busy{false};  // inside a function of the library: a fork waits
  PageIndex held_pages[kMaxHeld] = {};

  bool holds(PageIndex page) const {
    for (unsigned i = 0; i < held; i++) {
      if (held_pages[i] == page) return true;
    }
    return false;
  }
};

class Epochs {
 public:
  // Assigns a record to a thread or fiber, at its first scope. detach() returns it.
  ScopeRecord* attach();
  // The record of the calling thread or fiber, which has had a scope.
  static ScopeRecord& here() { return static_cast<ScopeRecord&>(*farside_scopes_here); }
  static void detach(ScopeRecord* record) {
    FARSIDE_CHECK(record->taken.load(std::memory_order_relaxed));
    record->taken.store(false, std::memory_order_release);
  }

  // Ends the outermost scope, in which no pointer was taken, and begins it again.
  static void restart(ScopeRecord& scopes) { __atomic_store_n(&scopes.epoch, uint64_t{now()}, __ATOMIC_RELEASE); }

  // The epoch of a change that was just made.
  static uint32_t now() { return static_cast<uint32_t>(__atomic_load_n(&farside_epoch, __ATOMIC_SEQ_CST)); }

  // Raises the epoch. Returns the oldest epoch of an open scope, or the new one if there is none: changes with an epoch
  // below it are older than every open scope. One caller at a time.
  uint32_t advance();

  // Waits until no record but self is busy. A thread that becomes busy later sees what the caller did before.
  void wait_for_others(const ScopeRecord* self);
  // In the child of a fork: only the calling thread or fiber exists.
  void reset_in_child(const ScopeRecord* self);

 private:
  std::atomic<ScopeRecord*> first_{nullptr};
};

// Whether epoch `since` precedes `oldest`. Epochs wrap around.
inline bool is_before(uint32_t since, uint32_t oldest) { return static_cast<int32_t>(since - oldest) < 0; }

// A scope for functions of the library.
class Scope {
 public:
  Scope() : scopes_(farside_scope_begin()) {}
  ~Scope() { farside_scope_end(scopes_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  farside_scopes* scopes_;
};

}  // namespace farside::objects
