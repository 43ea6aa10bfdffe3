// What the paths of the pager work on, and on whose behalf.
#pragma once
#include "remote/remote_store.h"

namespace farside::pager {

class Budget;
class EvictorGroup;
class FarSpace;
class Frames;
class Gate;
class PageTable;
class Policy;
class ThreadRegistry;
class Twins;
struct ThreadSlot;

// The pager's parts. Owned by Pager, which outlives everything that holds a Context.
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
};

// The thread that makes a request, and whether it may be suspended while pages are fetched for it.
struct Caller {
  ThreadSlot& thread;
  bool may_suspend = false;  // a fiber, whose worker may run others meanwhile (fiber/wait.h)
};

// Limit for one request to a memory server, in which the transport tries again and reconnects.
inline constexpr uint64_t kTransportTimeoutNs = 30ull * 1000 * 1000 * 1000;

// Ends the process: memory on the server cannot be reached any more. Never zeros, never a hang.
[[noreturn]] void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error);

}  // namespace farside::pager
