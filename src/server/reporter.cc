#include "server/reporter.h"

#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "server/registry.h"
#include "wire/codec.h"

namespace farside::server {
namespace {

constexpr uint64_t kReplyTimeoutNs = 1'000'000'000;

}  // namespace

Reporter::Reporter(const transport::Endpoint& controller, const std::string& token, const std::string& address,
                   std::function<void(wire::ServerReport*)> read, std::function<void(bool)> drain)
    : controller_(controller),
      address_(address),
      read_(std::move(read)),
      drain_(std::move(drain)),
      key_(wire::key_of_token(token)) {
  // Signals of the process are handled by the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Reporter::~Reporter() {
  {
    LockGuard hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  fds_.close_all_but(-1);
}

void Reporter::set_token(const std::string& token) {
  LockGuard hold(mutex_);
  key_ = wire::key_of_token(token);
}

void Reporter::leave() {
  {
    LockGuard hold(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
}

void Reporter::run() {
  bool failing = false, leaving = false;
  // Before it stops, it has reported that the server leaves.
  while (wants_report(&leaving)) {
    int r = report();
    drain_(leaving || order_.load() == wire::Order::kDrain);
    (r < 0 ? failed_ : accepted_)++;
    if (r < 0 && !failing) {
      const char* what = fd_ >= 0       ? "rejected a report"  // a connection is closed without a reply
                         : r == -EACCES ? "rejected the secret of this server (--tokens)"
                                        : "cannot be reached";
      log(LogLevel::kWarning, "the controller {} {}; retrying", controller_.name, what);
    }
    if (r == 0 && failing) log(LogLevel::kWarning, "the controller {} accepts reports again", controller_.name);
    failing = r < 0;
    wait_for_next(leaving);
  }
}

// leaving: whether the last report said so; set for the next one.
bool Reporter::wants_report(bool* leaving) {
  LockGuard hold(mutex_);
  if (stopping_ && leaving_ == *leaving) return false;
  *leaving = leaving_;
  return true;
}

void Reporter::wait_for_next(bool leaving) {
  auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(Registry::kReportEveryNs);
  LockGuard hold(mutex_);
  while (!stopping_ && leaving_ == leaving && changed_.wait_until(mutex_, end) == std::cv_status::no_timeout) {}
}

transport::Dialer Reporter::dialer() {
  LockGuard hold(mutex_);
  transport::Dialer dialer = {controller_, {}, &fds_};
  dialer.hello.mode = wire::HelloMode::kObserve;
  dialer.key = key_;
  return dialer;
}

int Reporter::report() {
  Status status;
  if (fd_ < 0) fd_ = dialer().open(&status);
  if (fd_ < 0) return fd_;
  wire::ServerReport report = {};
  memcpy(report.address, address_.data(), std::min(address_.size(), sizeof report.address - 1));
  read_(&report);
  {
    LockGuard hold(mutex_);
    report.leaving = leaving_;
  }
  report.order = order_;
  wire::ErrorReply error;
  wire::RegisterReply reply;
  auto bytes = std::as_writable_bytes(std::span(&reply, 1));
  int r =
      transport::exchange(fd_, wire::Op::kRegister, wire::bytes_of(report), bytes, now_ns() + kReplyTimeoutNs, &error);
  if (r == 0) r = wire::decode_register_reply(bytes, &reply);
  if (r == 0) take(reply);
  if (r < 0 && error.code == 0) {  // the connection failed; an error reply would leave it usable
    fds_.close(fd_);
    fd_ = -1;
  }
  return r;
}

void Reporter::take(const wire::RegisterReply& reply) {
  if (order_.exchange(reply.order) == reply.order) return;
  log(LogLevel::kInfo, "{}",
      reply.order == wire::Order::kDrain ? "programs move their slabs to other servers: an operator drains this server"
      : reply.order == wire::Order::kCordon ? "the pool places no new slabs here: an operator cordoned this server"
                                            : "the pool places new slabs here again");
}

}  // namespace farside::server
