#include "launch/ucx_relay.h"

#include "base/os.h"
#include "server/listen.h"

namespace farside {
namespace {

constexpr int kStartMs = 10'000;
constexpr int kReplyMs = 1000;

}  // namespace

Result<std::unique_ptr<UcxRelay>> UcxRelay::start(const PrivateDirectory& directory, const ucx::Settings& settings) {
  std::unique_ptr<UcxRelay> relay(new UcxRelay);
  std::string path = directory.socket_file("exchanging");
  auto listener = server::listen_unix(path, true);
  if (!listener.ok()) return listener.status();
  Status started = relay->helper_.start(settings, "relay", "-", *listener);
  os::close(*listener);
  if (!started.ok()) return started;
  if (Status s = ucx::wait_until_ready(&relay->helper_, settings, kStartMs); !s.ok()) return s;
  auto hidden = directory.hide_socket(path);
  if (!hidden.ok()) return hidden.status();
  relay->socket_ = *hidden;
  return relay;
}

size_t UcxRelay::connections() {
  uint64_t count = 0;
  char question = 0;
  bool answered = helper_.send(&question, sizeof question) == 0 && helper_.wait(kReplyMs) &&
                  helper_.receive(&count, sizeof count) == sizeof count;
  return answered ? count : 0;
}

}  // namespace farside
