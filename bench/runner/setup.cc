#include "bench/runner/setup.h"

#include "base/bits.h"
#include "launch/installation.h"
#include "launch/machine_check.h"

namespace farside::bench {

Result<std::unique_ptr<Setup>> Setup::create(const Settings& settings, unsigned needs) {
  if (Status able = needs & kSelfPaging ? check_paging() : Status(); !able.ok()) return able;
  std::unique_ptr<Setup> setup(new Setup(settings));
  Status started = setup->start_servers(needs);
  if (!started.ok()) return started;
  if (needs & kKernelSwap) setup->make_swap();
  return setup;
}

// Objects that are fetched one by one leave garbage, so a server may hold several times the data.
Status Setup::start_servers(unsigned needs) {
  if (!(needs & (kServer | kSecondServer))) return {};
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  uint64_t capacity = 8 * settings_.bytes + 2 * kGiB;
  ucx::Settings ucx = needs & kUcx ? prepare_ucx() : ucx::Settings();
  auto first =
      ServerProcess::start(hold_, capacity, "", ucx, needs & kOffload ? installation->offload_host() : std::string(),
                           settings_.server_threads);
  if (!first.ok()) return first.status();
  first_ = std::move(*first);
  if (!(needs & kSecondServer)) return {};
  auto second = ServerProcess::start(hold_, capacity, first_->token());
  if (!second.ok()) return second.status();
  second_ = std::move(*second);
  return {};
}

void Setup::make_swap() {
  auto swap = settings_.zram ? KernelSwap::create(settings_.bytes, settings_.share)
                             : Status::error(ECANCELED, "left out by --no-zram");
  if (swap.ok()) swap_ = std::move(*swap);
  else missing_[kSwap] = swap.status().text();
}

// The transports of a card where there is one that can serve memory, else TCP on loopback.
ucx::Settings Setup::prepare_ucx() {
  auto installation = find_installation();
  ucx::Settings ucx = {installation.ok() ? installation->ucx_helper() : "", "all"};
  auto found = installation.ok() ? ucx::survey(ucx) : installation.status();
  bool serves = found.ok() && found->has_card && found->pages_on_demand;
  ucx.transports = serves ? ucx::kDefaultTransports : "tcp";
  Status ready = found.ok() ? start_relay(ucx) : found.status();
  if (ready.ok()) return ucx;
  missing_["ucx"] = ready.text();
  return {};
}

Status Setup::start_relay(const ucx::Settings& ucx) {
  auto directory = PrivateDirectory::create();
  if (!directory.ok()) return directory.status();
  directory_ = std::move(*directory);
  auto relay = UcxRelay::start(*directory_, ucx);
  if (relay.ok()) ucx_relay_ = std::move(*relay);
  return relay.status();
}

FarMemoryConfig Setup::far(const std::string& transport) const {
  FarMemoryConfig config = {.address = transport == "shm" ? first_->shm() : first_->tcp(),
                            .token = first_->token(),
                            .bytes = settings_.bytes,
                            .local = settings_.near_bytes(),
                            .evictors = settings_.evictors};
  if (transport == "ucx") config.address = first_->ucx();
  if (ucx_relay_) config.ucx_relay = ucx_relay_->socket();
  return config;
}

}  // namespace farside::bench
