// What the workers call of the pager, which this folder does not depend on.
#pragma once

struct farside_scopes;

namespace farside::fibers {

// Any may be null.
struct Hooks {
  void (*worker_starts)() = nullptr;  // in the thread, before its first fiber
  void (*worker_ends)() = nullptr;    // in the thread, after its last
  // Completes the fetches that the worker's fibers wait for. Called between fibers while at least one of them is in
  // wait_until, with at least SignalsBlocked::kAllButFaults blocked. Must not wait or call this library.
  void (*poll)() = nullptr;
  // Releases the scopes of far objects of a fiber that will not be used again.
  void (*drop_scopes)(farside_scopes*) = nullptr;
};

}  // namespace farside::fibers
