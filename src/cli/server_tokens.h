// The tokens that a server accepts, from the files that its command line names.
#pragma once
#include <string>
#include <vector>

#include "server/access/tokens.h"

namespace farside::cli {

// At most one of them is given.
struct TokenFiles {
  std::string single;  // --token-file: one secret for all clients
  std::string named;   // --tokens
  bool any() const { return !single.empty() || !named.empty(); }
};

Result<std::vector<server::TokenEntry>> read_tokens(const TokenFiles& files);

// The secret of the first server that is named: this server reports with it. EINVAL if there is none.
Result<std::string> secret_for_reports(const std::vector<server::TokenEntry>& tokens);

}  // namespace farside::cli
