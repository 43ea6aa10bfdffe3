#include "abi/option_values.h"

#include <algorithm>
#include <charconv>

namespace farside {
namespace {

std::string_view take_until(std::string_view* rest, std::string_view end) {
  size_t at = rest->find(end);
  std::string_view taken = rest->substr(0, at);
  rest->remove_prefix(at == rest->npos ? rest->size() : at + end.size());
  return taken;
}

template <typename Number>
bool is_number(std::string_view text, Number* number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool has_form(std::string_view text, std::string_view form) {
  size_t variable = form.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  if (variable > 0) return text.starts_with(form.substr(0, variable)) && text.size() > variable;
  size_t colon = text.rfind(':');
  return colon != text.npos && colon > 0 && colon + 1 < text.size();
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view range) {
  std::vector<std::string_view> words;
  while (!range.empty()) {
    std::string_view listed = take_until(&range, ", ");
    while (!listed.empty()) words.push_back(take_until(&listed, " or "));
  }
  return words;
}

Limits limits_of(std::string_view range) {
  Limits limits = {take_until(&range, " "), {}};
  if (take_until(&range, " ") == "to") limits.max = take_until(&range, " ");
  return limits;
}

bool parse_number(std::string_view text, std::string_view range, double* number) {
  Limits limits = limits_of(range);
  double min = 0, max = 0;
  return is_number(limits.min, &min) && is_number(limits.max, &max) && is_number(text, number) && *number >= min &&
         *number <= max;
}

bool parse_whole_number(std::string_view text, std::string_view range, uint64_t* number) {
  double value = 0;
  return is_number(text, number) && parse_number(text, range, &value);
}

bool parse_size_in(std::string_view text, std::string_view range, uint64_t* bytes) {
  Limits limits = limits_of(range);
  Result<uint64_t> size = parse_size(text), min = parse_size(limits.min), max = parse_size(limits.max);
  if (!size.ok() || !min.ok() || *size < *min || (max.ok() && *size > *max)) return false;
  *bytes = *size;
  return true;
}

bool parse_word(std::string_view text, std::string_view range, size_t* position) {
  std::vector<std::string_view> words = words_of(range);
  auto found = std::ranges::find(words, text);
  *position = static_cast<size_t>(found - words.begin());
  return found != words.end();
}

bool parse_switch(std::string_view text, bool* is_on) {
  *is_on = text == "on" || text == "1";
  return *is_on || text == "off" || text == "0";
}

bool has_form_of(std::string_view text, std::string_view range) {
  return std::ranges::any_of(words_of(range), [&](std::string_view form) { return has_form(text, form); });
}

}  // namespace farside
