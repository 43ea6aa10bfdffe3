// How calls of include/farside/offload.h reach memory servers. libfarside has no backend: there every call is executed
// in the program. The preload library sets one.
#pragma once
#include "farside/offload.h"
#include "offload/call_costs.h"

namespace farside::offload {

class Backend {
 public:
  virtual ~Backend() = default;
  // Whether a server should execute the call. The mode is not LOCAL. 0: no; 1: yes; negative: the call fails with this
  // error, and the reply has its text. *expected: of a call with the mode AUTOMATIC that both ways can execute; else
  // its function stays 0. Called by the thread or fiber that makes the call, which call() may not be.
  virtual int choose(const farside_offload_request& request, farside_offload_reply* reply, Expected* expected) = 0;
  // Executes a call for which choose() returned 1. As farside_offload_call. *may_repeat: after an error, the function
  // did not run, or changed nothing.
  virtual int call(const farside_offload_request& request, const Expected& expected, farside_offload_reply* reply,
                   bool* may_repeat) = 0;
  // A call was executed in the program, in this time.
  virtual void note_local(const Expected& expected, uint64_t ns) = 0;
  virtual int servers() = 0;
  virtual int place(uint64_t address, size_t bytes, size_t* same_bytes) = 0;
};

// To be called once, before the first call. The backend outlives all calls.
void set_backend(Backend* backend);

// Stores the text of an error, without an end of line; returns the error.
int fail(farside_offload_reply* reply, int error, const char* text);

}  // namespace farside::offload
