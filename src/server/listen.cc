#include "server/listen.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/os.h"

namespace farside::server {
namespace {

constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kBacklog = 4096;

Status cannot_listen(const std::string& where, int code) {
  return Status::error(code, "cannot listen on {}: {}", where, strerror(code));
}

uint16_t port_of(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  uint16_t port;  // in network byte order
  memcpy(&port,
         address.ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : &reinterpret_cast<sockaddr_in&>(address).sin_port,
         sizeof port);
  return ntohs(port);
}

int bind_and_listen(int fd, const sockaddr* address, socklen_t length) {
  if (bind(fd, address, length) < 0 || listen(fd, kBacklog) < 0) return -errno;
  return 0;
}

bool is_served(const sockaddr_un& address) {
  int fd = socket(AF_UNIX, kType, 0);
  bool answers = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
  os::close(fd);
  return answers;
}

}  // namespace

Result<int> listen_tcp(const std::string& address, uint16_t* port) {
  size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return Status::error(EINVAL, "'{}' is not an address to listen on; write host:port", address);
  std::string host = address.substr(0, colon), service = address.substr(colon + 1);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);

  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  int r = getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found);
  if (r != 0) return Status::error(EINVAL, "cannot listen on {}: {}", address, gai_strerror(r));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);

  int fd = socket(found->ai_family, kType, 0);
  if (fd < 0) return cannot_listen(address, errno);
  int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (int b = bind_and_listen(fd, found->ai_addr, found->ai_addrlen); b < 0) {
    os::close(fd);
    return cannot_listen(address, -b);
  }
  *port = port_of(fd);
  return fd;
}

Result<int> listen_unix(const std::string& path, bool for_all_users) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status::error(ENAMETOOLONG, "'{}' is too long for a Unix socket (107 bytes); choose a shorter path", path);
  }
  memcpy(address.sun_path, path.data(), path.size());

  struct stat info;
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode))
      return Status::error(EEXIST, "{} exists and is not a socket; choose another path", path);
    if (is_served(address)) return Status::error(EADDRINUSE, "another server listens on {}", path);
    unlink(path.c_str());
  }
  int fd = socket(AF_UNIX, kType, 0);
  if (fd < 0) return cannot_listen(path, errno);
  fchmod(fd, S_IRUSR | S_IWUSR);  // bind() creates the file with this mode
  int error = bind_and_listen(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  if (error == 0 && for_all_users && chmod(path.c_str(), 0666) != 0) error = -errno;
  if (error == 0) return fd;
  os::close(fd);
  return cannot_listen(path, -error);
}

}  // namespace farside::server
