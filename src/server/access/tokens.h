// Who may do what on a server: the tokens that it accepts, by name. Each token belongs to a tenant, which keeps its
// identity when the tokens are read again, so that new rights apply to open connections too.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "server/regions/tenant.h"
#include "wire/auth.h"

namespace farside::server {

// A set of them is the sum of its bits.
enum Operation : unsigned {
  kMayCreate = 1,     // regions
  kMayFork = 2,       // make snapshots of its regions, for forked children
  kMaySeeCounts = 4,  // of all clients
  kMayReport = 8,     // to a controller, as one of its servers
  kMayOffload = 16,   // have the server execute functions of its own, where the server does so
  kMayOperate = 32,   // cordon servers of a controller's list
  kClientOperations = kMayCreate | kMayFork | kMaySeeCounts,
};

// A line of a token file.
struct TokenEntry {
  std::string name;  // unique
  std::string secret;
  unsigned operations = kClientOperations;
  uint64_t quota = 0;  // bytes for all regions of the token together; 0: no limit
};

// The entries of a token file. Each line is
//   client NAME SECRET [quota=SIZE] [allow=create,fork,statistics,offload,operate]
//   server NAME SECRET
// or empty, or a comment that begins with #. `file` is for messages; none of them contains a secret.
Result<std::vector<TokenEntry>> parse_tokens(std::string_view text, std::string_view file);

// One token for all clients. An empty one is known to all, who then may do everything.
std::vector<TokenEntry> single_token(const std::string& secret);

// Thread-safe.
class Tokens {
 public:
  Tokens(const std::vector<TokenEntry>& entries, Account* server) : server_(server) { replace(entries); }

  // Tenants whose tokens are no longer there may do nothing more; their regions stay.
  void replace(const std::vector<TokenEntry>& entries);

  // The tenant by whose token a client proved itself, and that token. Null: none.
  std::shared_ptr<Tenant> find(const wire::Greeting& greeting, const wire::Proof& proof, wire::Key* key) const;

 private:
  struct Known {
    wire::Key key;
    std::shared_ptr<Tenant> tenant;
  };

  Account* const server_;
  mutable Mutex mutex_;
  std::vector<Known> known_ GUARDED_BY(mutex_);
};

}  // namespace farside::server
