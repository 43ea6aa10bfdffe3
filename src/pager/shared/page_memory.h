// The members of the Pager that belong together, so that a constructor names the groups it needs. Each class keeps
// references to those members that it uses, and to no others. The Pager outlives all of them.
#pragma once

namespace farside::pager {

class Budget;
class FarSpace;
class FramePool;
class Frames;
class Gate;
class HugeAccount;
class HugeDensity;
class HugeQueue;
class HugeTable;
class PageTable;
class Policy;
class SampleLog;
class ThreadRegistry;
class Twins;

// Where pages are, their words, which of them leave first, how many may be near, and the log of those that are sampled.
struct PageMemory {
  FarSpace& space;
  PageTable& table;
  Policy& policy;
  Frames& frames;
  Budget& budget;
  Twins& twins;
  SampleLog& samples;
};

// The same of huge pages.
struct HugePageMemory {
  HugeTable& table;
  HugeQueue& queue;
  HugeDensity& density;
  FramePool& pool;
  HugeAccount& account;
};

// The threads that access far memory, and the gate by which a fork keeps them out.
struct ThreadsAndGate {
  ThreadRegistry& threads;
  Gate& gate;
};

}  // namespace farside::pager
