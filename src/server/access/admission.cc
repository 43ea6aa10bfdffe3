#include "server/access/admission.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/os.h"

namespace farside::server {
namespace {

constexpr unsigned kMaxPending = 512;

unsigned descriptor_limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, INT32_MAX));
}

// Clients on this machine are not limited as a source: they may be many users, or come through a tunnel.
bool is_remote(const std::string& source) {
  return source != "unix" && source != "::" && !source.starts_with("127.");  // the network of ::1 is ::
}

}  // namespace

Admission::Admission()
    : descriptors_(descriptor_limit()), max_connections_(std::min(descriptors_ / 8 * 7, kMaxConnections)) {}

Admission::Refusal Admission::enter(int fd, const std::string& source) {
  Refusal refusal = Refusal::kNone;
  LockGuard hold(mutex_);
  unsigned& of_source = by_source_[source];
  if (static_cast<unsigned>(fd) >= descriptors_ / 8 * 7) refusal = Refusal::kDescriptors;
  else if (connections_ >= max_connections_) refusal = Refusal::kTotal;
  else if (is_remote(source) && of_source >= max_connections_ / 2) refusal = Refusal::kSource;
  of_source++;
  connections_++;
  if (refusal == Refusal::kNone) accepted_++;
  else refused_[static_cast<unsigned>(refusal)]++;
  return refusal;
}

void Admission::leave(const std::string& source) {
  LockGuard hold(mutex_);
  connections_--;
  auto entry = by_source_.find(source);
  if (--entry->second == 0) by_source_.erase(entry);
}

Admission::Refusal Admission::enter_region(int fd, const std::string& source) {
  LockGuard hold(mutex_);
  Refusal refusal = Refusal::kNone;
  if (!leaves_room(fd)) refusal = Refusal::kDescriptors;
  else if (is_remote(source) && by_source_[source] > max_connections_ / 8 * 3) refusal = Refusal::kSource;
  if (refusal != Refusal::kNone) refused_[static_cast<unsigned>(refusal)]++;
  return refusal;
}

bool Admission::has_room_for_regions() const {
  int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (lowest < 0) return errno != EMFILE;
  os::close(lowest);
  return leaves_room(lowest);
}

unsigned Admission::max_pending() const { return std::clamp(descriptors_ / 8, 1U, kMaxPending); }

const char* text_of(Admission::Refusal refusal) {
  switch (refusal) {
    case Admission::Refusal::kTotal:
      return "the server has too many connections; try again later, or use another server";
    case Admission::Refusal::kSource:
      return "the server has too many connections from this machine";
    case Admission::Refusal::kDescriptors:
      return "the server has no file descriptors left; raise its limit on open files (ulimit -n)";
    case Admission::Refusal::kNone:
      break;
  }
  return "";
}

}  // namespace farside::server
