#include "tls/relay.h"

#include <unistd.h>

#include <algorithm>

#include "base/os.h"
#include "tls/relay_thread.h"

namespace farside::tls {
namespace {

constexpr long kProcessorsPerThread = 4;
constexpr long kMaxThreads = 4;

}  // namespace

Relay::Relay(int listener, RelaySettings settings) : listener_(listener), settings_(std::move(settings)) {}

Result<std::unique_ptr<Relay>> Relay::start(int listener, RelaySettings settings) {
  std::unique_ptr<Relay> relay(new Relay(listener, std::move(settings)));
  long threads = std::clamp(sysconf(_SC_NPROCESSORS_ONLN) / kProcessorsPerThread, 1L, kMaxThreads);
  for (long i = 0; i < threads; i++) {
    relay->threads_.push_back(std::make_unique<RelayThread>(listener, relay->settings_, &relay->connections_));
    if (Status s = relay->threads_.back()->start(); !s.ok()) return s;
  }
  return relay;
}

Relay::~Relay() {
  threads_.clear();
  os::close(listener_);
}

}  // namespace farside::tls
