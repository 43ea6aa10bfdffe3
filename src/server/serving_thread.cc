#include "server/serving_thread.h"

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
constexpr uint64_t kSweepNs = 500'000'000;  // interval of the search for expired connections and regions
constexpr uint64_t kAcceptBackoffNs = 100'000'000;
constexpr uint64_t kGreetingNs = 100'000'000;  // that a connection has at least to send its greeting
constexpr unsigned kClosedPerTrim = 256;       // connections after whose end unused memory is returned to the kernel

constexpr transport::KeepAlive kKeepAlive = {.idle_s = 10, .interval_s = 2, .probes = 5};

}  // namespace

ServingThread::ServingThread(std::vector<Listener> listeners, ServerState* server, CallThreads* calls)
    : listeners_(std::move(listeners)),
      server_(server),
      calls_(calls),
      max_pending_(server->admission.max_pending()),
      max_local_(std::max(2u, std::thread::hardware_concurrency() / 2)),
      core_(kLongYieldUs) {}

Result<std::unique_ptr<ServingThread>> ServingThread::start(std::vector<Listener> listeners, ServerState* server,
                                                            CallThreads* calls) {
  std::unique_ptr<ServingThread> thread(new ServingThread(std::move(listeners), server, calls));
  if (Status s = thread->prepare(); !s.ok()) return s;
  // Signals of the process are handled by the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread->thread_ = std::thread([t = thread.get()] { t->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

Status ServingThread::prepare() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_event_ < 0)
    return Status::error(errno, "the server has no file descriptors left; raise the limit on open files (ulimit -n)");
  epoll_event event = {EPOLLIN, {.fd = wake_event_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_event_, &event);
  listen_to(true);
  return {};
}

void ServingThread::stop() {
  if (thread_.joinable()) {
    stopping_ = true;
    wake();
    thread_.join();
  }
  connections_.clear();
  active_.clear();
  unfinished_.clear();
  if (epoll_ >= 0) os::close(epoll_);
  if (wake_event_ >= 0) os::close(wake_event_);
  epoll_ = wake_event_ = -1;
}

void ServingThread::wake() {
  uint64_t one = 1;
  os::write(wake_event_, &one, sizeof one);
}

void ServingThread::run() {
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

// Whether threads of this machine's clients need the core of a polling server: more of them are active than half of the
// cores, of which each client has one for its evictor.
bool ServingThread::shares_cores() const {
  auto local = std::count_if(active_.begin(), active_.end(), [](const Connection* c) { return c->peer().is_local; });
  return static_cast<unsigned>(local) > max_local_;
}

// One piece of a request, and one of what the pool has left to do. Whether there are more.
bool ServingThread::do_piece() {
  bool tidy = server_->pool.is_tidy() || !server_->pool.tidy();
  if (unfinished_.empty()) return !tidy;
  Connection* connection = unfinished_.front();
  connection->go_on();
  last_request_ = now_ns();
  unfinished_.pop_front();
  update(connection);  // adds it again at the end, if it is still unfinished
  return !tidy || !unfinished_.empty();
}

bool ServingThread::poll_active() {
  bool any = false;
  for (size_t i = 0; i < active_.size(); i++) {
    Connection* connection = active_[i];
    if (!connection->receive()) continue;
    any = true;
    update(connection);  // may remove it from active_; the connection that is skipped then is polled in the next round
  }
  if (any) last_request_ = now_ns();
  return any;
}

// Waits for events and serves them. False: stop() was called.
bool ServingThread::wait(int timeout_ms) {
  epoll_event events[64];
  int count = epoll_wait(epoll_, events, 64, timeout_ms);
  for (int i = 0; i < count; i++) {
    int fd = events[i].data.fd;
    if (fd == wake_event_) {
      if (!woken()) return false;
      continue;
    }
    auto listener = std::find_if(listeners_.begin(), listeners_.end(), [fd](const Listener& l) { return l.fd == fd; });
    if (listener != listeners_.end()) {
      accept_from(*listener);
      continue;
    }
    auto it = connections_.find(fd);
    if (it != connections_.end()) serve(it->second.get(), events[i].events);
  }
  return true;
}

// False: by stop().
bool ServingThread::woken() {
  uint64_t count;
  os::read(wake_event_, &count, sizeof count);
  std::vector<Connection*> waiting;
  for (auto& [fd, connection] : connections_) {
    if (connection->wants_news()) waiting.push_back(connection.get());
  }
  for (Connection* connection : waiting) {
    connection->announce();
    update(connection);  // may close it
  }
  return !stopping_;
}

int ServingThread::sleep_ms() const {
  if (!active_.empty()) return kExpectingMs;
  if (accept_after_ns_ != 0) return kAcceptBackoffNs / 1'000'000;
  return needs_sweep() ? kSweepNs / 1'000'000 : -1;
}

void ServingThread::accept_from(const Listener& listener) {
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

bool ServingThread::make_room_for_pending() {
  if (pending_ < max_pending_) return true;
  pending_ = count_pending();
  return pending_ < max_pending_ || close_oldest_pending();
}

// Makes room by closing the oldest connection without a greeting, of the source that has the most of them. False: all
// are new.
bool ServingThread::close_oldest_pending() {
  std::unordered_map<std::string, unsigned> by_source;
  Connection* oldest = nullptr;
  for (auto& [fd, connection] : connections_) {
    if (!connection->is_open()) by_source[connection->peer().source]++;
  }
  auto most = std::max_element(by_source.begin(), by_source.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  uint64_t now = now_ns();
  for (auto& [fd, connection] : connections_) {
    if (connection->is_open() || connection->peer().source != most->first) continue;
    if (!oldest || connection->age_ns(now) > oldest->age_ns(now)) oldest = connection.get();
  }
  if (!oldest || oldest->age_ns(now) < kGreetingNs) return false;
  close(oldest);
  pending_--;
  return true;
}

void ServingThread::pause_accepting() {
  accept_after_ns_ = now_ns() + kAcceptBackoffNs;
  listen_to(false);
}

// Of a client that was accepted. Its peer sees a closed connection if there are too many without a greeting.
void ServingThread::add_passed(int fd) {
  if (make_room_for_pending()) add(fd, {.is_unix = true});
  else os::close(fd);
}

void ServingThread::add(int fd, const Listener& listener) {
  if (!listener.is_unix) transport::set_tcp_options(fd, kKeepAlive);
  auto connection = std::make_unique<Connection>(fd, listener.is_unix, listener.tls, now_ns(), server_);
  epoll_event event = {EPOLLIN, {.fd = fd}};
  connection->interest = event.events;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) < 0) return;
  Connection* raw = connection.get();
  connections_[fd] = std::move(connection);
  pending_++;
  serve(raw, EPOLLIN);
}

void ServingThread::serve(Connection* connection, uint32_t events) {
  if (events & EPOLLOUT) connection->send();
  if (connection->receive()) {
    last_request_ = now_ns();
    make_active(connection);
  } else if (events & (EPOLLHUP | EPOLLERR)) {
    return close(connection);  // all data was received, and none can be sent
  }
  update(connection);
}

void ServingThread::update(Connection* connection) {
  if (int fd = connection->take_accepted(); fd >= 0) add_passed(fd);
  if (connection->wants_thread()) return hand_over(connection);
  if (connection->is_over()) return close(connection);
  if (connection->is_unfinished() && std::find(unfinished_.begin(), unfinished_.end(), connection) == unfinished_.end())
    unfinished_.push_back(connection);
  uint32_t wanted = (connection->wants_input() ? EPOLLIN : 0u) | (connection->wants_output() ? EPOLLOUT : 0u);
  if (wanted == connection->interest) return;
  epoll_event event = {wanted, {.fd = connection->fd()}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, connection->fd(), &event);
  connection->interest = wanted;
}

// To a thread of its own, because it calls functions.
void ServingThread::hand_over(Connection* connection) {
  std::erase(active_, connection);
  std::erase(unfinished_, connection);
  auto found = connections_.find(connection->fd());
  std::unique_ptr<Connection> owned = std::move(found->second);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, owned->fd(), nullptr);
  connections_.erase(found);
  if (calls_->adopt(&owned)) return;
  owned->refuse_calls();
  closed_++;
}

void ServingThread::make_active(Connection* connection) {
  auto it = std::find(active_.begin(), active_.end(), connection);
  if (it != active_.end()) return;
  if (active_.size() == kMaxActive) {
    active_.back()->trim();
    active_.pop_back();
  }
  active_.insert(active_.begin(), connection);
}

void ServingThread::deactivate_all() {
  for (Connection* connection : active_) connection->trim();
  active_.clear();
}

void ServingThread::close(Connection* connection) {
  std::erase(active_, connection);
  std::erase(unfinished_, connection);
  // Closing the descriptor is not enough: if a forked child has it too, the socket stays registered, with a number that
  // may soon belong to another connection.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, connection->fd(), nullptr);
  connections_.erase(connection->fd());
  closed_++;
}

void ServingThread::close_expired() {
  if (!needs_sweep() && accept_after_ns_ == 0) return;
  uint64_t now = now_ns();
  if (accept_after_ns_ != 0 && now >= accept_after_ns_) {
    accept_after_ns_ = 0;
    listen_to(true);
  }
  if (now - last_sweep_ < kSweepNs) return;
  last_sweep_ = now;
  server_->pool.free_abandoned(now);
  std::vector<Connection*> expired;
  for (auto& [fd, connection] : connections_) {
    if (connection->is_expired(now)) expired.push_back(connection.get());
  }
  for (Connection* connection : expired) close(connection);
  pending_ = count_pending();
  if (closed_ < kClosedPerTrim) return;
  closed_ = 0;
  malloc_trim(0);
}

// There may be expired connections or regions, or memory to return to the kernel.
bool ServingThread::needs_sweep() const {
  return pending_ > 0 || closed_ >= kClosedPerTrim || server_->pool.keeps_abandoned();
}

size_t ServingThread::count_pending() const {
  return static_cast<size_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const auto& c) { return !c.second->is_open(); }));
}

void ServingThread::listen_to(bool on) {
  for (const Listener& l : listeners_) {
    epoll_event event = {EPOLLIN | EPOLLEXCLUSIVE, {.fd = l.fd}};
    epoll_ctl(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, l.fd, &event);
  }
}

}  // namespace farside::server
