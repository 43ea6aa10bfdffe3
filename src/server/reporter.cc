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
                   std::function<void(wire::ServerReport*)> read)
    : address_(address), read_(std::move(read)) {
  dialer_ = {controller, {}, &fds_};
  dialer_.hello.mode = wire::HelloMode::kObserve;
  dialer_.key = wire::key_of_token(token);
  // Signals of the process are handled by the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Reporter::~Reporter() {
  {
    std::lock_guard hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  fds_.close_all_but(-1);
}

void Reporter::set_token(const std::string& token) {
  std::lock_guard hold(mutex_);
  dialer_.key = wire::key_of_token(token);
}

void Reporter::leave() {
  {
    std::lock_guard hold(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
}

void Reporter::run() {
  bool failing = false, leaving = false;
  // Before it stops, it has reported that the server leaves.
  for (std::unique_lock hold(mutex_); !stopping_ || leaving_ != leaving;) {
    leaving = leaving_;
    hold.unlock();
    int r = report();
    (r < 0 ? failed_ : accepted_)++;
    if (r < 0 && !failing) {
      const char* what = fd_ >= 0       ? "rejected a report"  // a connection is closed without a reply
                         : r == -EACCES ? "rejected the secret of this server (--tokens)"
                                        : "cannot be reached";
      log(LogLevel::kWarning, "the controller {} {}; retrying", dialer_.endpoint.name, what);
    }
    if (r == 0 && failing) log(LogLevel::kWarning, "the controller {} accepts reports again", dialer_.endpoint.name);
    failing = r < 0;
    hold.lock();
    changed_.wait_for(hold, std::chrono::nanoseconds(Registry::kReportEveryNs),
                      [&] { return stopping_ || leaving_ != leaving; });
  }
}

transport::Dialer Reporter::dialer() {
  std::lock_guard hold(mutex_);
  return dialer_;
}

int Reporter::report() {
  Status status;
  if (fd_ < 0) fd_ = dialer().open(&status);
  if (fd_ < 0) return fd_;
  wire::ServerReport report = {};
  memcpy(report.address, address_.data(), std::min(address_.size(), sizeof report.address - 1));
  read_(&report);
  {
    std::lock_guard hold(mutex_);
    report.leaving = leaving_;
  }
  wire::ErrorReply error;
  int r = transport::exchange(fd_, wire::Op::kRegister, wire::bytes_of(report), {}, now_ns() + kReplyTimeoutNs, &error);
  if (r < 0 && error.code == 0) {  // the connection failed; an error reply would leave it usable
    fds_.close(fd_);
    fd_ = -1;
  }
  return r;
}

}  // namespace farside::server
