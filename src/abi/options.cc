#include "abi/options.h"

#include <algorithm>

#include "abi/run_variables.h"
#include "base/nearest_name.h"

namespace farside {
namespace {

constexpr std::string_view kPrefix = "FARSIDE_";
constexpr std::string_view kPolicyNames[kPolicyKinds] = {"fifo", "lru", "priority", "2q"};

Status bad_value(std::string_view name, std::string_view value, const OptionRow& row) {
  std::string_view use = row.range.empty() ? "a shorter text of one line" : row.range;
  return Status::error(EINVAL, "{}={} is not valid; use {}", name, value, use);
}

std::string listed(const std::vector<const OptionRow*>& keys) {
  std::string text;
  for (const OptionRow* key : keys) text += fmt::format("{}{}", text.empty() ? "" : ", ", key->key());
  return text;
}

Status unknown_key(std::string_view name, std::string_view key, const std::vector<const OptionRow*>& keys) {
  std::vector<std::string_view> names;
  for (const OptionRow* row : keys) names.push_back(row->key());
  std::string_view meant = nearest_name(key, names);
  if (meant.empty()) return Status::error(EINVAL, "{} has no key '{}'; its keys are {}", name, key, listed(keys));
  return Status::error(EINVAL, "{} has no key '{}'; did you mean {}?", name, key, meant);
}

Status unknown_variable(std::string_view variable) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_rows()) {
    if (row.scope != Scope::kInternal && !row.is_key()) names.push_back(row.variable.substr(kPrefix.size()));
  }
  std::string_view meant = nearest_name(variable.substr(std::min(kPrefix.size(), variable.size())), names);
  if (meant.empty())
    return Status::error(EINVAL, "{} is not an option of Farside; farside run --help lists the variables", variable);
  return Status::error(EINVAL, "{} is not an option of Farside; did you mean {}{}?", variable, kPrefix, meant);
}

// Takes the next item of "a=1,b=2,c"; where the value of its key is a list, with what follows up to the next key.
std::string_view take_item(std::string_view* rest, const std::vector<const OptionRow*>& keys) {
  auto is_key = [&](std::string_view item) {
    std::string_view key = item.substr(0, item.find('='));
    return std::ranges::find(keys, key, &OptionRow::key);
  };
  size_t end = rest->find(',');
  auto key = is_key(rest->substr(0, end));
  while (key != keys.end() && (*key)->takes_commas() && end != rest->npos) {
    size_t next = rest->find(',', end + 1);
    if (is_key(rest->substr(end + 1, next - end - 1)) != keys.end()) break;
    end = next;
  }
  std::string_view item = rest->substr(0, end);
  rest->remove_prefix(end == rest->npos ? rest->size() : end + 1);
  return item;
}

// Sets the options that "policy=fifo,evictors=2" gives.
Status set_keys(Options* options, std::string_view name, std::string_view text,
                const std::vector<const OptionRow*>& keys) {
  while (!text.empty()) {
    std::string_view item = take_item(&text, keys);
    size_t equals = item.find('=');
    std::string_view key = item.substr(0, equals);
    auto row = std::ranges::find(keys, key, &OptionRow::key);
    if (row == keys.end()) return unknown_key(name, key, keys);
    std::string_view value = equals != item.npos ? item.substr(equals + 1) : (*row)->is_flag() ? "on" : "";
    if (Status set = set_option(options, fmt::format("{} {}", name, key), value); !set.ok()) return set;
  }
  return {};
}

Status set_from_environment(std::string_view entry, std::span<const GivenOption> given, Options* options) {
  size_t equals = entry.find('=');
  std::string_view variable = entry.substr(0, equals);
  if (!entry.starts_with(kPrefix) || equals == entry.npos || is_run_variable(variable)) return {};
  const OptionRow* row = find_option(variable);
  if (!row) return unknown_variable(variable);
  bool is_replaced = row->set && std::ranges::find(given, row, &GivenOption::row) != given.end();
  return is_replaced ? Status() : set_option(options, variable, entry.substr(equals + 1));
}

}  // namespace

std::string_view policy_name(PolicyKind kind) { return kPolicyNames[static_cast<size_t>(kind)]; }

bool policy_from_name(std::string_view name, PolicyKind* kind) {
  for (size_t i = 0; i < kPolicyKinds; i++) {
    if (name != kPolicyNames[i]) continue;
    *kind = static_cast<PolicyKind>(i);
    return true;
  }
  return false;
}

const OptionRow* find_option(std::string_view name) {
  auto found = std::ranges::find_if(option_rows(),
                                    [&](const OptionRow& row) { return row.name == name || row.variable == name; });
  return found == option_rows().end() ? nullptr : &*found;
}

std::vector<const OptionRow*> keys_of(const OptionRow& row) {
  std::vector<const OptionRow*> keys;
  for (const OptionRow& other : option_rows()) {
    if (other.is_key() && other.name.substr(0, other.name.find(' ')) == row.name) keys.push_back(&other);
  }
  return keys;
}

std::string describe_option(const OptionRow& row) {
  std::string text(row.help);
  if (!row.is_flag() && !row.range.empty() && row.range != row.value) text += fmt::format(": {}", row.range);
  if (!row.is_flag() && !row.default_value.empty()) text += fmt::format(" (default {})", row.default_value);
  return text;
}

Status set_option(Options* options, std::string_view name, std::string_view value) {
  const OptionRow* row = find_option(name);
  if (!row) return unknown_variable(name);
  if (value.empty())
    return Status::error(EINVAL, "{} has an empty value; give {}, or leave it out", name,
                         row->range.empty() ? row->value : row->range);
  if (!row->set) return set_keys(options, name, value, keys_of(*row));
  return row->set(options, *row, value) ? Status() : bad_value(name, value, *row);
}

Status read_options(const char* const* environment, std::span<const GivenOption> given, Options* options) {
  for (; *environment; environment++) {
    if (Status set = set_from_environment(*environment, given, options); !set.ok()) return set;
  }
  for (const GivenOption& option : given) {
    if (Status set = set_option(options, option.row->name, option.text); !set.ok()) return set;
  }
  return {};
}

Status copy_text(std::string_view text, std::span<char> field, std::string_view what) {
  if (text.size() >= field.size())
    return Status::error(EINVAL, "{} is longer than {} characters", what, field.size() - 1);
  std::ranges::fill(std::ranges::copy(text, field.begin()).out, field.end(), '\0');
  return {};
}

}  // namespace farside
