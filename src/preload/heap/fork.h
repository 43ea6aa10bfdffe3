// fork, for whoever makes the system call: quiesces far memory before, and makes both sides whole after (DESIGN 3).
#pragma once

namespace farside::preload {

// The constructor prepares; exactly one of the two others is called on each side. Nothing between the constructor and
// in_child() may touch far memory. Signals are blocked by the caller.
class ForkScope {
 public:
  ForkScope();
  void in_parent(bool forked);
  void in_child();
};

}  // namespace farside::preload
