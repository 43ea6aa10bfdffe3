// What the measurements of a benchmark share: memory servers in processes of their own, and kernel swap.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "bench/runner/settings.h"
#include "launch/ucx_relay.h"
#include "measure/far_memory.h"
#include "measure/process.h"
#include "measure/swap.h"

namespace farside::bench {

inline constexpr const char* kTransports[] = {"shm", "tcp"};
inline constexpr const char* kSwap = "zram swap";

// What a benchmark needs, as bits.
enum Need : unsigned { kServer = 1, kSecondServer = 2, kKernelSwap = 4, kUcx = 8, kOffload = 16, kSelfPaging = 32 };

class Setup {
 public:
  // The caller has no threads.
  static Result<std::unique_ptr<Setup>> create(const Settings& settings, unsigned needs);

  const Settings& settings() const { return settings_; }
  const SignalHold& hold() const { return hold_; }
  const ServerProcess& server() const { return *first_; }
  const ServerProcess& second() const { return *second_; }
  const UcxRelay* ucx_relay() const { return ucx_relay_.get(); }  // nullptr: not available
  const KernelSwap* swap() const { return swap_.get(); }          // nullptr: not available
  // What is not available, with the reason.
  const std::map<std::string, std::string>& missing() const { return missing_; }

  // Far memory over "shm", "tcp" or "ucx", of settings.bytes, of which the share given by the settings may be near.
  FarMemoryConfig far(const std::string& transport) const;

 private:
  explicit Setup(const Settings& settings) : settings_(settings) {}
  Status start_servers(unsigned needs);
  void make_swap();
  ucx::Settings prepare_ucx();
  Status start_relay(const ucx::Settings& ucx);

  const Settings& settings_;
  SignalHold hold_;
  std::unique_ptr<PrivateDirectory> directory_;  // of the relay
  std::unique_ptr<UcxRelay> ucx_relay_;
  std::unique_ptr<ServerProcess> first_, second_;
  std::unique_ptr<KernelSwap> swap_;
  std::map<std::string, std::string> missing_;
};

}  // namespace farside::bench
