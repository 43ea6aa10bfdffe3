#include "server/worker.h"

#include <malloc.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "transport/tcp_options.h"

namespace farside::server {
namespace {

constexpr uint64_t kPollNs = 200'000;       // of polling after the last request
constexpr size_t kMaxActive = 8;            // connections that are polled
constexpr int kExpectingMs = 100;           // of sleep while requests are expected; then idle connections are trimmed
constexpr int kRoundsPerWait = 8;           // of polling, then events of all other connections are read
constexpr uint64_t kLongYieldUs = 1000;     // after a yield this long, the thread sleeps instead of polling
constexpr uint64_t kSweepNs = 500'000'000;  // interval of the search for expired sessions and regions
constexpr uint64_t kAcceptBackoffNs = 100'000'000;
constexpr uint64_t kGreetingNs = 100'000'000;  // that a connection has at least to send its greeting
constexpr unsigned kClosedPerTrim = 256;       // connections after whose end unused memory is returned to the kernel

constexpr transport::KeepAlive kKeepAlive = {.idle_s = 10, .interval_s = 2, .probes = 5};

}  // namespace

Worker::Worker(std::vector<Listener> listeners, Shared* shared)
    : listeners_(std::move(listeners)),
      shared_(shared),
      max_pending_(shared->admission.max_pending()),
      max_local_(std::max(2u, std::thread::hardware_concurrency() / 2)),
      core_(kLongYieldUs) {}

Result<std::unique_ptr<Worker>> Worker::start(std::vector<Listener> listeners, Shared* shared) {
  std::unique_ptr<Worker> worker(new Worker(std::move(listeners), shared));
  if (Status s = worker->prepare(); !s.ok()) return s;
  // Signals of the process are handled by the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  worker->thread_ = std::thread([w = worker.get()] { w->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return worker;
}

Status Worker::prepare() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || stop_event_ < 0)
    return Status::error(errno, "the server has no file descriptors left; raise the limit on open files (ulimit -n)");
  epoll_event event = {EPOLLIN, {.fd = stop_event_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, stop_event_, &event);
  listen_to(true);
  return {};
}

void Worker::stop() {
  if (thread_.joinable()) {
    uint64_t one = 1;
    os::write(stop_event_, &one, sizeof one);
    thread_.join();
  }
  sessions_.clear();
  active_.clear();
  unfinished_.clear();
  if (epoll_ >= 0) os::close(epoll_);
  if (stop_event_ >= 0) os::close(stop_event_);
  epoll_ = stop_event_ = -1;
}

void Worker::run() {
  for (int round = 0;; round++) {
    uint64_t now = now_ns();
    bool expecting = !active_.empty() && now - last_request_ < kPollNs && !core_.is_crowded();
    bool polling = expecting && !shares_cores();
    bool has_pieces = do_piece();
    if (!expecting) deactivate_all();
    if (polling && round % kRoundsPerWait != 0) {
      if (!poll_active()) core_.yield();  // the client may need this core for its next request
      continue;
    }
    if (!wait(polling || has_pieces ? 0 : sleep_ms())) return;
    close_expired();
  }
}

// Whether threads of this machine's clients need the core of a polling worker: more of them are active than half of the
// cores, of which each client has one for its evictor.
bool Worker::shares_cores() const {
  auto local = std::count_if(active_.begin(), active_.end(), [](const Session* s) { return s->is_local(); });
  return static_cast<unsigned>(local) > max_local_;
}

// One piece of a request, and one of what the pool has left to do. Whether there are more.
bool Worker::do_piece() {
  bool tidy = shared_->pool.is_tidy() || !shared_->pool.tidy();
  if (unfinished_.empty()) return !tidy;
  Session* session = unfinished_.front();
  session->go_on();
  last_request_ = now_ns();
  unfinished_.pop_front();
  update(session);  // adds it again at the end, if it is still unfinished
  return !tidy || !unfinished_.empty();
}

bool Worker::poll_active() {
  bool any = false;
  for (size_t i = 0; i < active_.size(); i++) {
    Session* session = active_[i];
    if (!session->receive()) continue;
    any = true;
    update(session);  // may remove it from active_; the session that is skipped then is polled in the next round
  }
  if (any) last_request_ = now_ns();
  return any;
}

// Waits for events and serves them. False: stop() was called.
bool Worker::wait(int timeout_ms) {
  epoll_event events[64];
  int count = epoll_wait(epoll_, events, 64, timeout_ms);
  for (int i = 0; i < count; i++) {
    int fd = events[i].data.fd;
    if (fd == stop_event_) return false;
    auto listener = std::find_if(listeners_.begin(), listeners_.end(), [fd](const Listener& l) { return l.fd == fd; });
    if (listener != listeners_.end()) {
      accept_from(*listener);
      continue;
    }
    auto it = sessions_.find(fd);
    if (it != sessions_.end()) serve(it->second.get(), events[i].events);
  }
  return true;
}

int Worker::sleep_ms() const {
  if (!active_.empty()) return kExpectingMs;
  if (accept_after_ns_ != 0) return kAcceptBackoffNs / 1'000'000;
  return needs_sweep() ? kSweepNs / 1'000'000 : -1;
}

void Worker::accept_from(const Listener& listener) {
  constexpr int kBurst = 16;
  for (int i = 0; i < kBurst; i++) {
    if (!make_room_for_pending()) return pause_accepting();  // the others wait in the backlog
    int fd = accept4(listener.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      add(fd, listener);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log(LogLevel::kWarning, "no descriptor for a new connection; raise the limit on open files (ulimit -n)");
      if (!close_oldest_pending()) pause_accepting();
    }
    return;
  }
}

bool Worker::make_room_for_pending() {
  if (pending_ < max_pending_) return true;
  pending_ = count_pending();
  return pending_ < max_pending_ || close_oldest_pending();
}

// Makes room by closing the oldest connection without a greeting, of the source that has the most of them. False: all
// are new.
bool Worker::close_oldest_pending() {
  std::unordered_map<std::string, unsigned> by_source;
  Session* oldest = nullptr;
  for (auto& [fd, session] : sessions_) {
    if (!session->is_open()) by_source[session->source()]++;
  }
  auto most = std::max_element(by_source.begin(), by_source.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  uint64_t now = now_ns();
  for (auto& [fd, session] : sessions_) {
    if (session->is_open() || session->source() != most->first) continue;
    if (!oldest || session->age_ns(now) > oldest->age_ns(now)) oldest = session.get();
  }
  if (!oldest || oldest->age_ns(now) < kGreetingNs) return false;
  close(oldest);
  pending_--;
  return true;
}

void Worker::pause_accepting() {
  accept_after_ns_ = now_ns() + kAcceptBackoffNs;
  listen_to(false);
}

// Of a client that was accepted. Its peer sees a closed connection if there are too many without a greeting.
void Worker::add_passed(int fd) {
  if (make_room_for_pending()) add(fd, {.is_unix = true});
  else os::close(fd);
}

void Worker::add(int fd, const Listener& listener) {
  if (!listener.is_unix) transport::set_tcp_options(fd, kKeepAlive);
  auto session = std::make_unique<Session>(fd, listener.is_unix, listener.tls, now_ns(), shared_);
  epoll_event event = {EPOLLIN, {.fd = fd}};
  session->interest = event.events;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) < 0) return;
  Session* raw = session.get();
  sessions_[fd] = std::move(session);
  pending_++;
  serve(raw, EPOLLIN);
}

void Worker::serve(Session* session, uint32_t events) {
  if (events & EPOLLOUT) session->send();
  if (session->receive()) {
    last_request_ = now_ns();
    make_active(session);
  } else if (events & (EPOLLHUP | EPOLLERR)) {
    return close(session);  // all data was received, and none can be sent
  }
  update(session);
}

void Worker::update(Session* session) {
  if (int fd = session->take_connection(); fd >= 0) add_passed(fd);
  if (session->wants_thread()) return hand_over(session);
  if (session->over()) return close(session);
  if (session->is_unfinished() && std::find(unfinished_.begin(), unfinished_.end(), session) == unfinished_.end())
    unfinished_.push_back(session);
  uint32_t wanted = (session->wants_input() ? EPOLLIN : 0u) | (session->wants_output() ? EPOLLOUT : 0u);
  if (wanted == session->interest) return;
  epoll_event event = {wanted, {.fd = session->fd()}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, session->fd(), &event);
  session->interest = wanted;
}

// To a thread of its own, because it calls functions.
void Worker::hand_over(Session* session) {
  std::erase(active_, session);
  std::erase(unfinished_, session);
  auto found = sessions_.find(session->fd());
  std::unique_ptr<Session> owned = std::move(found->second);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, owned->fd(), nullptr);
  sessions_.erase(found);
  if (shared_->calls->adopt(&owned)) return;
  owned->refuse_calls();
  closed_++;
}

void Worker::make_active(Session* session) {
  auto it = std::find(active_.begin(), active_.end(), session);
  if (it != active_.end()) return;
  if (active_.size() == kMaxActive) {
    active_.back()->trim();
    active_.pop_back();
  }
  active_.insert(active_.begin(), session);
}

void Worker::deactivate_all() {
  for (Session* session : active_) session->trim();
  active_.clear();
}

void Worker::close(Session* session) {
  std::erase(active_, session);
  std::erase(unfinished_, session);
  // Closing the descriptor is not enough: if a forked child has it too, the socket stays registered, with a number that
  // may soon belong to another session.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, session->fd(), nullptr);
  sessions_.erase(session->fd());
  closed_++;
}

void Worker::close_expired() {
  if (!needs_sweep() && accept_after_ns_ == 0) return;
  uint64_t now = now_ns();
  if (accept_after_ns_ != 0 && now >= accept_after_ns_) {
    accept_after_ns_ = 0;
    listen_to(true);
  }
  if (now - last_sweep_ < kSweepNs) return;
  last_sweep_ = now;
  shared_->pool.free_abandoned(now);
  std::vector<Session*> expired;
  for (auto& [fd, session] : sessions_) {
    if (session->is_expired(now)) expired.push_back(session.get());
  }
  for (Session* session : expired) close(session);
  pending_ = count_pending();
  if (closed_ < kClosedPerTrim) return;
  closed_ = 0;
  malloc_trim(0);
}

// There may be expired connections or regions, or memory to return to the kernel.
bool Worker::needs_sweep() const {
  return pending_ > 0 || closed_ >= kClosedPerTrim || shared_->pool.keeps_abandoned();
}

size_t Worker::count_pending() const {
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(), [](const auto& s) { return !s.second->is_open(); }));
}

void Worker::listen_to(bool on) {
  for (const Listener& l : listeners_) {
    epoll_event event = {EPOLLIN | EPOLLEXCLUSIVE, {.fd = l.fd}};
    epoll_ctl(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, l.fd, &event);
  }
}

}  // namespace farside::server
