// Who may connect, and when descriptors become few. A server refuses first what it can refuse without harm: new
// clients. Connections of clients that it has already are accepted until nearly all descriptors are in use, and a part
// is left for connections that only receive the reason why they are refused. Thread-safe.
//
//   descriptors in use   0                        3/4                    7/8            limit (ulimit -n)
//                        | all are accepted        | no new regions       | all refused   |
//
// The kernel gives a new connection the lowest free descriptor, so its number shows how many are in use.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/sync.h"

namespace farside::server {

class Admission {
 public:
  static constexpr unsigned kMaxConnections = 32768;

  enum class Refusal { kNone, kTotal, kSource, kDescriptors };
  static constexpr unsigned kRefusals = 4;

  // Reads the limit on descriptors of this process.
  Admission();

  // Counts a new connection, whose descriptor is `fd`, of a source. Each call is followed by leave().
  Refusal enter(int fd, const std::string& source);
  void leave(const std::string& source);

  // Whether a connection that was counted may create a region.
  Refusal enter_region(int fd, const std::string& source);
  bool has_room_for_regions() const;
  // Of connections without a greeting, for one serving thread.
  unsigned max_pending() const;

  uint64_t refused(Refusal reason) const { return refused_[static_cast<unsigned>(reason)]; }
  uint64_t accepted() const { return accepted_; }
  uint64_t count() const { return connections_; }

 private:
  bool leaves_room(int fd) const { return static_cast<unsigned>(fd) < descriptors_ / 4 * 3; }

  const unsigned descriptors_, max_connections_;
  std::atomic<uint64_t> accepted_{0}, connections_{0}, refused_[kRefusals] = {};
  Mutex mutex_;  // no other lock is taken while it is held
  std::unordered_map<std::string, unsigned> by_source_ GUARDED_BY(mutex_);
};

// One line for the client that is refused.
const char* text_of(Admission::Refusal refusal);

}  // namespace farside::server
