// A controller's list of memory servers: how much each lends, when it last reported, and what an operator wants of it:
// that it is cordoned or drained. Behind an interface, so that several controllers could share a distributed store
// instead of the memory of one.
//
// An order is known to the controller and to the server, which repeats it in its reports. So a restart of one of them
// does not end it: a controller believes a server that is new in its list, and itself about the others.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/sync.h"
#include "wire/protocol.h"

namespace farside::server {

// Thread-safe. Times are those of now_ns().
class Registry {
 public:
  static constexpr uint64_t kReportEveryNs = 1'000'000'000;     // interval of the reports
  static constexpr uint64_t kSilentAfterNs = 3'500'000'000;     // without a report: three are missing
  static constexpr uint64_t kForgetAfterNs = 60'000'000'000;    // without a report
  static constexpr uint64_t kLeftAfterNs = 2 * kReportEveryNs;  // without a report, for a server that leaves

  virtual ~Registry() = default;

  // Adds a server, or replaces its last report; servers are identified by their address. *reply: what it is to report
  // from now on. 0, or -ENOSPC if the list is full.
  virtual int report(const wire::ServerReport& report, uint64_t now, wire::RegisterReply* reply) = 0;

  // 0, or -ENOENT if the server is not in the list.
  virtual int order(const std::string& address, wire::Order order, uint64_t now) = 0;

  // Adds the copies that a client lacks, or replaces its last report. 0, or -ENOSPC if there are too many clients.
  virtual int report_copies(const wire::CopiesReport& report, uint64_t now) = 0;

  // Of the clients that have reported in the last 3.5 s.
  virtual wire::PoolCopies copies(uint64_t now) = 0;

  // All servers in the list, sorted by address.
  virtual std::vector<wire::ServerEntry> servers(uint64_t now) = 0;
};

// A list in the memory of this process. After a restart it is complete when every server has reported once.
class MemoryRegistry final : public Registry {
 public:
  int report(const wire::ServerReport& report, uint64_t now, wire::RegisterReply* reply) override;
  int order(const std::string& address, wire::Order order, uint64_t now) override;
  int report_copies(const wire::CopiesReport& report, uint64_t now) override;
  wire::PoolCopies copies(uint64_t now) override;
  std::vector<wire::ServerEntry> servers(uint64_t now) override;

  static constexpr size_t kMaxClients = 4096;  // that lack copies at the same time

 private:
  struct Reported {
    wire::ServerReport report;  // `order` is the controller's
    uint64_t reported_ns;
  };
  struct ReportedCopies {
    wire::CopiesReport report;
    uint64_t reported_ns;
  };
  void forget_silent(uint64_t now) REQUIRES(mutex_);
  void forget_silent_clients(uint64_t now) REQUIRES(mutex_);

  Mutex mutex_;  // no other lock is taken while it is held
  std::map<std::string, Reported> servers_ GUARDED_BY(mutex_);
  std::map<uint64_t, ReportedCopies> clients_ GUARDED_BY(mutex_);  // that lack copies, by their numbers
};

}  // namespace farside::server
