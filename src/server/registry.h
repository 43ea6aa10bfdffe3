// A controller's list of memory servers: how much each lends, and when it last reported. Behind an interface, so that
// several controllers could share a distributed store instead of the memory of one.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "wire/protocol.h"

namespace farside::server {

// Thread-safe. Times are on the clock of now_ns().
class Registry {
 public:
  static constexpr uint64_t kReportEveryNs = 1'000'000'000;     // servers report so often
  static constexpr uint64_t kSilentAfterNs = 3'500'000'000;     // several reports are missing
  static constexpr uint64_t kForgetAfterNs = 60'000'000'000;    // of silence
  static constexpr uint64_t kLeftAfterNs = 2 * kReportEveryNs;  // of silence, for one that said it leaves

  virtual ~Registry() = default;

  // Adds a server or renews what is known of it; its address names it. 0, or -ENOSPC when there are too many.
  virtual int report(const wire::ServerReport& report, uint64_t now) = 0;

  // All servers that are not forgotten, by address.
  virtual std::vector<wire::ServerEntry> servers(uint64_t now) = 0;
};

// In this process's memory: gone with it, and complete again when every server has reported once.
class MemoryRegistry final : public Registry {
 public:
  int report(const wire::ServerReport& report, uint64_t now) override;
  std::vector<wire::ServerEntry> servers(uint64_t now) override;

 private:
  struct Entry {
    wire::ServerReport report;
    uint64_t reported_ns;
  };
  void forget_silent(uint64_t now);

  std::mutex mutex_;  // guards servers_; nothing else is done while it is held
  std::map<std::string, Entry> servers_;
};

}  // namespace farside::server
