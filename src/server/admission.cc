#include "server/admission.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

std::string text_of_address(int family, const void* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, bytes, text, sizeof text);
  return text;
}

// An IPv4 client of an IPv6 socket is shown as IPv4.
const void* ipv4_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six) ? &six.s6_addr[12] : nullptr;
}

}  // namespace

Admission::Admission()
    : descriptors_(descriptor_limit()), max_connections_(std::min(descriptors_ / 8 * 7, kMaxConnections)) {}

Admission::Refusal Admission::enter(int fd, const std::string& source) {
  Refusal refusal = Refusal::kNone;
  std::lock_guard hold(mutex_);
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
  std::lock_guard hold(mutex_);
  connections_--;
  auto entry = by_source_.find(source);
  if (--entry->second == 0) by_source_.erase(entry);
}

Admission::Refusal Admission::enter_region(int fd, const std::string& source) {
  std::lock_guard hold(mutex_);
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

std::string source_of(const sockaddr_storage& address) {
  if (const void* four = ipv4_of(address)) return text_of_address(AF_INET, four);
  if (address.ss_family != AF_INET6) return "unix";
  in6_addr network = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  memset(&network.s6_addr[8], 0, 8);
  return text_of_address(AF_INET6, &network);
}

bool is_same_machine(const sockaddr_storage& own, const sockaddr_storage& peer) {
  const void *four = ipv4_of(own), *peer_four = ipv4_of(peer);
  if (four || peer_four) return four && peer_four && memcmp(four, peer_four, sizeof(in_addr)) == 0;
  if (peer.ss_family != AF_INET6) return true;  // a Unix socket
  const auto &six = reinterpret_cast<const sockaddr_in6&>(own), &peer_six = reinterpret_cast<const sockaddr_in6&>(peer);
  return memcmp(&six.sin6_addr, &peer_six.sin6_addr, sizeof(in6_addr)) == 0;
}

std::string peer_of(int fd, const sockaddr_storage& address) {
  if (const void* four = ipv4_of(address)) {
    auto port = reinterpret_cast<const sockaddr_in&>(address).sin_port;  // at the same place for IPv6
    return fmt::format("{}:{}", text_of_address(AF_INET, four), ntohs(port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    return fmt::format("[{}]:{}", text_of_address(AF_INET6, &six.sin6_addr), ntohs(six.sin6_port));
  }
  ucred user = {};
  socklen_t size = sizeof user;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size);
  return fmt::format("unix:uid={},pid={}", user.uid, user.pid);
}

}  // namespace farside::server
