#include "bench/delaying_proxy.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace farside::bench {
namespace {

constexpr size_t kBlockBytes = 256 * 1024;

struct Delayed {
  uint64_t due_ns;
  int to;
  std::vector<char> bytes;
};

bool send_all(int fd, const char* bytes, size_t count) {
  while (count > 0) {
    ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    count -= static_cast<size_t>(n);
  }
  return true;
}

sockaddr_in loopback(uint16_t port) { return {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}}; }

int connect_to(uint16_t port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(port);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// The proxy's loop. Since all replies take equally long, they are sent in the order in which they arrived.
class Loop {
 public:
  Loop(int listener, uint16_t target, uint64_t latency_ns)
      : listener_(listener), target_(target), latency_ns_(latency_ns), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    watch(listener_);
  }

  [[noreturn]] void run() {
    epoll_event events[64];
    for (;;) {
      int count = wait(events, 64);
      for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd;
        if (fd == listener_) accept_one();
        else pass_on(fd);
      }
      send_due();
    }
  }

 private:
  void watch(int fd) {
    epoll_event event = {EPOLLIN, {.fd = fd}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  int wait(epoll_event* events, int max) {
    if (delayed_.empty()) return epoll_wait(epoll_, events, max, -1);
    uint64_t now = now_ns(), due = delayed_.front().due_ns;
    uint64_t left = due > now ? due - now : 0;
    timespec timeout = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    return epoll_pwait2(epoll_, events, max, &timeout, nullptr);
  }

  void accept_one() {
    int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    int server = connect_to(target_);
    if (server < 0) {
      close(client);
      return;
    }
    int on = 1;
    for (int fd : {client, server}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      watch(fd);
    }
    peers_[client] = {server, false};
    peers_[server] = {client, true};
  }

  void pass_on(int fd) {
    auto found = peers_.find(fd);
    if (found == peers_.end()) return;
    auto [to, is_server] = found->second;
    ssize_t n = recv(fd, block_.data(), block_.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return end(fd, to);
    if (is_server) delayed_.push_back({now_ns() + latency_ns_, to, {block_.begin(), block_.begin() + n}});
    else send_all(to, block_.data(), static_cast<size_t>(n));
  }

  void end(int fd, int other) {
    std::erase_if(delayed_, [&](const Delayed& d) { return d.to == fd || d.to == other; });
    for (int end : {fd, other}) {
      peers_.erase(end);
      close(end);
    }
  }

  void send_due() {
    while (!delayed_.empty() && delayed_.front().due_ns <= now_ns()) {
      const Delayed& first = delayed_.front();
      send_all(first.to, first.bytes.data(), first.bytes.size());
      delayed_.pop_front();
    }
  }

  struct Peer {
    int fd;
    bool is_server;  // the key of this entry is the server's end
  };
  const int listener_;
  const uint16_t target_;
  const uint64_t latency_ns_;
  const int epoll_;
  std::unordered_map<int, Peer> peers_;
  std::deque<Delayed> delayed_;
  std::vector<char> block_ = std::vector<char>(kBlockBytes);
};

}  // namespace

Result<std::unique_ptr<DelayingProxy>> DelayingProxy::start(const std::string& target, unsigned latency_us) {
  auto port = static_cast<uint16_t>(std::stoul(target.substr(target.rfind(':') + 1)));
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  bool listens = listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                 listen(listener, 128) == 0 &&
                 getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (!listens) return Status::error(errno, "cannot listen on loopback: {}", strerror(errno));
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) return Status::error(errno, "cannot start a process: {}", strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    if (getppid() != parent) _exit(1);
    Loop(listener, port, uint64_t{latency_us} * 1000).run();
  }
  close(listener);
  return std::unique_ptr<DelayingProxy>(
      new DelayingProxy(pid, fmt::format("tcp://127.0.0.1:{}", ntohs(address.sin_port))));
}

DelayingProxy::~DelayingProxy() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace farside::bench
