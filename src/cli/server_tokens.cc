#include "cli/server_tokens.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cli/run_settings.h"

namespace farside::cli {

Result<std::vector<server::TokenEntry>> read_tokens(const TokenFiles& files) {
  if (!files.single.empty() && !files.named.empty())
    return Status::error(EINVAL,
                         "--tokens and --token-file exclude each other; name all clients in the file of --tokens");
  if (!files.named.empty()) {
    std::ifstream file(files.named);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    if (file) warn_if_public(files.named);
    if (file) return server::parse_tokens(text, files.named);
    return Status::error(ENOENT, "cannot read the tokens in {}: {}", files.named, strerror(errno));
  }
  Result<std::string> secret = std::string();
  if (!files.single.empty()) secret = read_token_file(files.single);
  if (!secret.ok()) return secret.status();
  return server::single_token(*secret);
}

Result<std::string> secret_for_reports(const std::vector<server::TokenEntry>& tokens) {
  auto found = std::find_if(tokens.begin(), tokens.end(),
                            [](const server::TokenEntry& t) { return (t.operations & server::kMayReport) != 0; });
  if (found != tokens.end()) return found->secret;
  return Status::error(EINVAL,
                       "a pool needs a secret of its servers, which its clients do not know; name it in a file for "
                       "--tokens, in a line: server NAME SECRET");
}

}  // namespace farside::cli
