#include "server/access/tokens.h"

#include <algorithm>
#include <cerrno>

#include "base/size.h"

namespace farside::server {
namespace {

constexpr size_t kMinSecret = 16, kMaxEntries = 64, kMaxName = 32;

// Takes the text before the next `separator` off.
std::string_view take(std::string_view* text, std::string_view separators) {
  size_t end = std::min(text->find_first_of(separators), text->size());
  std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    std::string_view word = take(&line, " \t\r");
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

unsigned operation_of(std::string_view name) {
  if (name == "create") return kMayCreate;
  if (name == "fork") return kMayFork;
  if (name == "statistics") return kMaySeeCounts;
  if (name == "offload") return kMayOffload;
  if (name == "operate") return kMayOperate;
  return 0;
}

Status set_operations(std::string_view list, TokenEntry* entry) {
  entry->operations = 0;
  while (!list.empty()) {
    std::string_view name = take(&list, ",");
    unsigned operation = operation_of(name);
    if (!operation)
      return Status::error(EINVAL, "{} is no operation; use create, fork, statistics, offload or operate", name);
    entry->operations |= operation;
  }
  return {};
}

Status set_right(std::string_view word, TokenEntry* entry) {
  constexpr std::string_view kQuota = "quota=", kAllow = "allow=";
  if (word.starts_with(kAllow)) return set_operations(word.substr(kAllow.size()), entry);
  if (!word.starts_with(kQuota)) return Status::error(EINVAL, "only quota=SIZE and allow=OPERATIONS follow a secret");
  Result<uint64_t> quota = parse_size(word.substr(kQuota.size()));
  if (quota.ok()) entry->quota = *quota;
  return quota.status();
}

Status set_entry(const std::vector<std::string_view>& words, TokenEntry* entry) {
  bool is_server = words[0] == "server";
  if (!is_server && words[0] != "client") return Status::error(EINVAL, "a line begins with client or server");
  if (words.size() < 3) return Status::error(EINVAL, "write {} NAME SECRET", words[0]);
  entry->name = words[1];
  entry->secret = words[2];
  if (entry->name.size() > kMaxName)
    return Status::error(EINVAL, "the name {} is longer than {} characters", entry->name, kMaxName);
  if (entry->secret.size() < kMinSecret || entry->secret.size() > wire::kMaxToken) {
    return Status::error(EINVAL,
                         "the secret of {} has {} characters; use {} to {}, as from 'head -c 24 /dev/urandom | base64'",
                         entry->name, entry->secret.size(), kMinSecret, wire::kMaxToken);
  }
  if (is_server) entry->operations = kMayReport;
  if (is_server && words.size() > 3) return Status::error(EINVAL, "nothing follows the secret of a server");
  for (size_t i = 3; i < words.size(); i++) {
    if (Status set = set_right(words[i], entry); !set.ok()) return set;
  }
  return {};
}

Status check_unique(const std::vector<TokenEntry>& entries, const TokenEntry& added) {
  for (const TokenEntry& other : entries) {
    if (other.name == added.name) return Status::error(EINVAL, "the name {} is there twice", added.name);
    if (other.secret == added.secret)
      return Status::error(EINVAL, "{} and {} have the same secret", other.name, added.name);
  }
  return {};
}

}  // namespace

Result<std::vector<TokenEntry>> parse_tokens(std::string_view text, std::string_view file) {
  std::vector<TokenEntry> entries;
  for (int number = 1; !text.empty(); number++) {
    std::vector<std::string_view> words = words_of(take(&text, "\n"));
    if (words.empty() || words[0].starts_with('#')) continue;
    TokenEntry entry;
    Status good = set_entry(words, &entry);
    if (good.ok()) good = check_unique(entries, entry);
    if (!good.ok()) return Status::error(EINVAL, "{}:{}: {}", file, number, good.text());
    entries.push_back(entry);
  }
  if (entries.empty()) return Status::error(EINVAL, "{} names no token; write lines such as: client NAME SECRET", file);
  if (entries.size() <= kMaxEntries) return entries;
  return Status::error(EINVAL, "{} names {} tokens; at most {} are possible", file, entries.size(), kMaxEntries);
}

std::vector<TokenEntry> single_token(const std::string& secret) {
  return {{"", secret, kClientOperations | kMayOffload | (secret.empty() ? kMayReport | kMayOperate : 0u), 0}};
}

void Tokens::replace(const std::vector<TokenEntry>& entries) {
  LockGuard hold(mutex_);
  std::vector<Known> before;
  before.swap(known_);
  for (const TokenEntry& entry : entries) {
    auto same =
        std::find_if(before.begin(), before.end(), [&](const Known& k) { return k.tenant->name == entry.name; });
    auto tenant = same != before.end() ? same->tenant : std::make_shared<Tenant>(entry.name, server_);
    tenant->operations = entry.operations;
    tenant->account.set_capacity(entry.quota ? entry.quota : Account::kUnlimited);
    known_.push_back({wire::key_of_token(entry.secret), tenant});
    if (same != before.end()) before.erase(same);
  }
  for (const Known& removed : before) removed.tenant->operations = 0;
}

std::shared_ptr<Tenant> Tokens::find(const wire::Greeting& greeting, const wire::Proof& proof, wire::Key* key) const {
  LockGuard hold(mutex_);
  for (const Known& known : known_) {
    wire::Proof right = wire::client_proof(known.key, greeting);
    if (!wire::same_secret(&right, &proof, sizeof right)) continue;
    *key = known.key;
    return known.tenant;
  }
  return nullptr;
}

}  // namespace farside::server
