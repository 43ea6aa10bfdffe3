// What all paths of the pager (faults, hints, range operations, evictors) share, and the thread on whose behalf one of
// them runs.
#pragma once
#include "remote/remote_store.h"

namespace farside::pager {

class Budget;
class EvictorGroup;
class HugeDensity;
class HugeQueue;
class HugeTable;
class FarSpace;
class FramePool;
class Frames;
class Gate;
class PageTable;
class Policy;
class ThreadRegistry;
class Twins;
struct ThreadSlot;

// References to the members of the Pager, which outlives every holder of a Context.
struct Context {
  remote::RemoteStore* store;
  FarSpace& space;
  PageTable& table;
  Policy& policy;
  Frames& frames;
  Budget& budget;
  Twins& twins;
  ThreadRegistry& threads;
  Gate& gate;
  EvictorGroup& evictors;
  HugeTable& huge;
  HugeQueue& huge_queue;
  HugeDensity& density;
  FramePool& pool;
};

// The thread that makes a request, and whether it may be suspended while pages are fetched for it.
struct Caller {
  ThreadSlot& thread;
  bool may_suspend = false;  // the caller is a fiber, whose worker may run others meanwhile (fiber/wait.h)
};

// Time limit of one request to a memory server, in nanoseconds. The transport repeats requests and reconnects within
// it.
inline constexpr uint64_t kTransportTimeoutNs = 30ull * 1000 * 1000 * 1000;

// Ends the process with a message: far pages of the program are lost. To continue would mean zeros in their place, or a
// hang.
[[noreturn]] void die_of_lost_memory(remote::RemoteStore* store, int error);

}  // namespace farside::pager
