#include "ucx/relay.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "ucx/helper.h"
#include "ucx/helper_protocol.h"
#include "ucx/link.h"
#include "ucx/polling.h"

namespace farside::ucx {
namespace {

constexpr uint64_t kSweepNs = 100'000'000;
constexpr uint64_t kAcceptBackoffNs = 100'000'000;

class Relay final : public Regions {
 public:
  explicit Relay(UcpWorker* worker) : worker_(worker), polling_(worker, kControlFd) { listen_to(true); }

  void run() {
    while (!is_closed_ && polling_.next(needs_time())) {
      for (const epoll_event& event : polling_.events()) serve(event.data.fd, event.events);
      uint64_t now = now_ns();
      for (auto& [name, region] : regions_) region->settle(now);
      for (auto& region : retired_) region->settle(now);
      for (auto& [fd, link] : links_) watch(link.get());
      if (now - last_sweep_ns_ > kSweepNs || !ended_.empty()) sweep(now);
    }
  }

  std::shared_ptr<RemoteRegion> find(const transport::RelayRequest& server, uint64_t id, uint64_t bytes,
                                     bool is_new) override {
    std::string name(reinterpret_cast<const char*>(&server.address), server.length);
    name.append(reinterpret_cast<const char*>(&id), sizeof id);
    std::shared_ptr<RemoteRegion>& region = regions_[name];
    if (region && is_new) retired_.push_back(std::exchange(region, nullptr));
    if (!region && bytes > 0) region = std::make_shared<RemoteRegion>(worker_, bytes, is_new);
    std::shared_ptr<RemoteRegion> found = region;
    if (!found) regions_.erase(name);
    return found;
  }

  void supersede(const RemoteRegion* region, uint64_t channel, uint64_t generation) override {
    for (auto& [fd, link] : links_) link->supersede(region, channel, generation);
  }

 private:
  void serve(int fd, uint32_t events) {
    if (fd == kControlFd) return answer_owner();
    if (fd == kGivenFd) return accept_some();
    auto it = links_.find(fd);
    if (it == links_.end()) return serve_remote(fd, events);
    it->second->serve_local(events);
  }

  void serve_remote(int fd, uint32_t events) {
    auto it = by_remote_.find(fd);
    if (it == by_remote_.end()) return;
    it->second->serve_remote(events);
  }

  void answer_owner() {
    char message[8];
    uint64_t count = links_.size();
    ssize_t n = recv(kControlFd, message, sizeof message, MSG_DONTWAIT);
    if (n > 0) n = send(kControlFd, &count, sizeof count, MSG_DONTWAIT | MSG_NOSIGNAL);
    is_closed_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }

  void accept_some() {
    constexpr int kBurst = 16;
    for (int i = 0; i < kBurst; i++) {
      int fd = accept4(kGivenFd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        log(LogLevel::kWarning, "no descriptor for a connection of UCX; raise the limit on open files (ulimit -n)");
        accept_after_ns_ = now_ns() + kAcceptBackoffNs;
        listen_to(false);
      }
      if (fd < 0) return;
      links_[fd] = std::make_shared<Link>(fd, this, now_ns());
    }
  }

  void listen_to(bool on) { polling_.watch(on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, kGivenFd, EPOLLIN); }

  void watch(Link* link) {
    if (link->remote() >= 0) by_remote_[link->remote()] = link;
    watch(link->local(), link->local_interest(), &link->watched_local);
    if (link->remote() >= 0) watch(link->remote(), link->remote_interest(), &link->watched_remote);
    if (link->is_over()) ended_.push_back(link->local());
  }

  void watch(int fd, uint32_t wanted, uint32_t* watched) {
    if (wanted == *watched) return;
    polling_.watch(*watched == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, fd, wanted);
    *watched = wanted;
  }

  void sweep(uint64_t now) {
    last_sweep_ns_ = now;
    for (int fd : std::exchange(ended_, {})) {
      auto it = links_.find(fd);
      if (it == links_.end()) continue;
      by_remote_.erase(it->second->remote());
      links_.erase(it);
    }
    for (auto& [fd, link] : links_) link->expire(now);
    if (accept_after_ns_ != 0 && now >= accept_after_ns_) {
      accept_after_ns_ = 0;
      listen_to(true);
    }
    std::erase_if(regions_, [now](auto& entry) { return is_unused(entry.second.get(), now); });
    std::erase_if(retired_, [now](auto& region) { return is_unused(region.get(), now); });
  }

  // No program uses it, nor UCX its buffers.
  static bool is_unused(RemoteRegion* region, uint64_t now) {
    if (region->has_links()) return false;
    if (region->has_requests()) region->abandon(now);
    return !region->has_requests();
  }

  bool needs_time() const {
    auto is_busy = [](const auto& entry) { return !entry.second->is_open(); };
    auto has_requests = [](const auto& entry) { return entry.second->has_requests() || !entry.second->has_links(); };
    return accept_after_ns_ != 0 || std::any_of(links_.begin(), links_.end(), is_busy) ||
           std::any_of(regions_.begin(), regions_.end(), has_requests);
  }

  UcpWorker* const worker_;
  Polling polling_;
  std::unordered_map<std::string, std::shared_ptr<RemoteRegion>> regions_;  // by server and number
  std::vector<std::shared_ptr<RemoteRegion>> retired_;                      // until they are unused
  std::unordered_map<int, std::shared_ptr<Link>> links_;                    // by their local sockets
  std::unordered_map<int, Link*> by_remote_;
  std::vector<int> ended_;
  uint64_t last_sweep_ns_ = 0;
  uint64_t accept_after_ns_ = 0;  // not 0: there were no descriptors; none is accepted before this time
  bool is_closed_ = false;
};

}  // namespace

int run_relay(const char* transports) {
  auto worker = UcpWorker::start(transports, false);
  if (!report_ready(worker.status())) return 1;
  auto relay = std::make_unique<Relay>(worker->get());
  relay->run();
  return 0;
}

}  // namespace farside::ucx
