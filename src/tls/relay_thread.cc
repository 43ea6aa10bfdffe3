#include "tls/relay_thread.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"

namespace farside::tls {
namespace {

constexpr uint64_t kAcceptBackoffNs = 100'000'000;
constexpr uint64_t kPollNs = 100'000;  // of polling after the last event
constexpr int kSweepMs = 500;          // interval of the search for connections that were not opened in time

}  // namespace

Status RelayThread::start() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || stop_event_ < 0)
    return Status::error(errno, "no file descriptors for the TLS relay; raise the limit on open files (ulimit -n)");
  epoll_event event = {EPOLLIN, {.fd = stop_event_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, stop_event_, &event);
  listen_to(true);
  // Signals of the process are handled by its other threads; SIGPIPE is an error of the call.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

RelayThread::~RelayThread() {
  if (thread_.joinable()) {
    uint64_t one = 1;
    os::write(stop_event_, &one, sizeof one);
    thread_.join();
  }
  if (epoll_ >= 0) os::close(epoll_);
  if (stop_event_ >= 0) os::close(stop_event_);
}

void RelayThread::run() {
  for (;;) {
    epoll_event events[64];
    bool polling = polls(now_ns());
    int count = epoll_wait(epoll_, events, 64, polling ? 0 : sleep_ms());
    if (count > 0) last_event_ns_ = now_ns();
    else if (polling) core_.yield();
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      if (fd == stop_event_) return links_.clear();
      if (fd == listener_) accept_some();
      else serve(fd, events[i].events);
    }
    auto unfinished = std::move(unfinished_);
    unfinished_.clear();
    for (const auto& link : unfinished) advance(link);
    watch_time();
  }
}

bool RelayThread::polls(uint64_t now) const { return now - last_event_ns_ < kPollNs && !core_.is_crowded(); }

int RelayThread::sleep_ms() const {
  if (!unfinished_.empty()) return 0;
  if (accept_after_ns_ != 0) return kAcceptBackoffNs / 1'000'000;
  return opening_.empty() ? -1 : kSweepMs;
}

void RelayThread::accept_some() {
  constexpr int kBurst = 16;
  for (int i = 0; i < kBurst; i++) {
    int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
      log(LogLevel::kWarning, "no descriptor for a connection over TLS; raise the limit on open files (ulimit -n)");
      accept_after_ns_ = now_ns() + kAcceptBackoffNs;
      listen_to(false);
    }
    if (fd < 0) return;
    auto link = std::make_shared<Link>(fd, settings_, now_ns());
    links_[fd] = link;
    opening_.push_back(link);
    connections_->fetch_add(1);
    watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET);
  }
}

void RelayThread::listen_to(bool on) {
  epoll_event event = {EPOLLIN | EPOLLEXCLUSIVE, {.fd = listener_}};
  epoll_ctl(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_, &event);
}

void RelayThread::serve(int fd, uint32_t events) {
  auto it = links_.find(fd);
  if (it == links_.end()) return;  // an earlier event of this round has ended it
  std::shared_ptr<Link> link = it->second;
  if (fd == link->local() && (events & EPOLLHUP)) link->local_closed();
  advance(link);
}

void RelayThread::advance(const std::shared_ptr<Link>& link) {
  bool had_remote = link->remote() >= 0;
  bool unfinished = link->advance();
  if (link->is_over()) return remove(link);
  if (unfinished && std::find(unfinished_.begin(), unfinished_.end(), link) == unfinished_.end())
    unfinished_.push_back(link);
  watch_sockets(link, had_remote);
}

// A Unix socket reports room whenever its peer has read, so it is asked only where there was none.
void RelayThread::watch_sockets(const std::shared_ptr<Link>& link, bool had_remote) {
  if (link->is_blocked() != link->watches_room) {
    link->watches_room = link->is_blocked();
    watch(EPOLL_CTL_MOD, link->local(), EPOLLIN | EPOLLET | (link->watches_room ? EPOLLOUT : 0u));
  }
  if (had_remote || link->remote() < 0) return;
  links_[link->remote()] = link;
  watch(EPOLL_CTL_ADD, link->remote(), EPOLLIN | EPOLLOUT | EPOLLET);
}

void RelayThread::watch(int operation, int fd, uint32_t events) {
  epoll_event event = {events, {.fd = fd}};
  epoll_ctl(epoll_, operation, fd, &event);
}

void RelayThread::remove(const std::shared_ptr<Link>& link) {
  if (links_.erase(link->local()) == 0) return;  // it is unfinished, and an event came before its turn
  links_.erase(link->remote());
  connections_->fetch_sub(1);
}

void RelayThread::watch_time() {
  uint64_t now = now_ns();
  if (accept_after_ns_ != 0 && now >= accept_after_ns_) {
    accept_after_ns_ = 0;
    listen_to(true);
  }
  for (const auto& link : opening_) {
    link->expire(now);
    if (link->is_over()) remove(link);
  }
  std::erase_if(opening_, [](const auto& link) { return link->is_open(); });
}

}  // namespace farside::tls
