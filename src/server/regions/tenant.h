// The holders of one token, as it is now. Thread-safe.
#pragma once
#include <atomic>
#include <string>

#include "server/regions/account.h"

namespace farside::server {

struct Tenant {
  Tenant(const std::string& n, Account* server) : name(n), account(Account::kUnlimited, server) {}
  bool may(unsigned one_of) const { return (operations.load() & one_of) != 0; }
  const std::string name;
  std::atomic<unsigned> operations{0};
  Account account;  // its capacity is the quota of the token
};

}  // namespace farside::server
