// How the values of options are parsed. Each function takes its limits, or the words that it accepts, from the range of
// the option's row, so that the range in the help is the one that is checked.
#pragma once
#include "abi/options.h"

namespace farside {

// The words of "auto, signal or handler", or of "HOST:PORT or file:PATH".
std::vector<std::string_view> words_of(std::string_view range);

// The limits of "1 to 16", "0.1 to 29 seconds", "64M to 16T" or "16M or more", as they are written. The second is ""
// where there is none.
struct Limits {
  std::string_view min, max;
};
Limits limits_of(std::string_view range);

bool parse_number(std::string_view text, std::string_view range, double* number);
bool parse_whole_number(std::string_view text, std::string_view range, uint64_t* number);
bool parse_size_in(std::string_view text, std::string_view range, uint64_t* bytes);
// The position of the text among the words of the range.
bool parse_word(std::string_view text, std::string_view range, size_t* position);
bool parse_switch(std::string_view text, bool* is_on);
// Whether the text has one of the forms of the range: it begins as "tcp://HOST:PORT" does before the upper-case
// letters, and goes on. The form HOST:PORT is a colon within the text.
bool has_form_of(std::string_view text, std::string_view range);

template <auto kField>
bool set_word(Options* options, const OptionRow& row, std::string_view text) {
  size_t position = 0;
  if (!parse_word(text, row.range, &position)) return false;
  options->*kField = static_cast<std::remove_reference_t<decltype(options->*kField)>>(position);
  return true;
}

template <auto kField>
bool set_switch(Options* options, const OptionRow&, std::string_view text) {
  return parse_switch(text, &(options->*kField));
}

template <auto kField>
bool set_number(Options* options, const OptionRow& row, std::string_view text) {
  uint64_t number = 0;
  if (!parse_whole_number(text, row.range, &number)) return false;
  options->*kField = static_cast<std::remove_reference_t<decltype(options->*kField)>>(number);
  return true;
}

// Stores nanoseconds.
template <auto kField>
bool set_seconds(Options* options, const OptionRow& row, std::string_view text) {
  constexpr double kSecondNs = 1e9;
  double seconds = 0;
  if (!parse_number(text, row.range, &seconds)) return false;
  options->*kField = static_cast<uint64_t>(seconds * kSecondNs);
  return true;
}

// Stores a part of 1.
template <auto kField>
bool set_percent(Options* options, const OptionRow& row, std::string_view text) {
  if (text.ends_with('%')) text.remove_suffix(1);
  double percent = 0;
  if (!parse_number(text, row.range, &percent)) return false;
  options->*kField = percent / 100;
  return true;
}

// Rounds up to a multiple of kUnit.
template <auto kField, uint64_t kUnit = 1>
bool set_size(Options* options, const OptionRow& row, std::string_view text) {
  uint64_t bytes = 0;
  if (!parse_size_in(text, row.range, &bytes)) return false;
  options->*kField = align_up(bytes, kUnit);
  return true;
}

template <auto kField>
bool set_size_or_share(Options* options, const OptionRow& row, std::string_view text) {
  Result<SizeOrShare> value = parse_size_or_share(text);
  if (!value.ok()) return false;
  uint64_t smallest = value->is_automatic() ? value->least : value->bytes, min = *parse_size(limits_of(row.range).min);
  bool is_bare = value->is_share() || *value == SizeOrShare{0, SizeOrShare::kAutomatic};
  if (!is_bare && smallest < min) return false;
  options->*kField = *value;
  return true;
}

// Any text that has room, without line breaks.
template <auto kField>
bool set_text(Options* options, const OptionRow&, std::string_view text) {
  return text.find('\n') == text.npos && copy_text(text, options->*kField, "").ok();
}

// An address, or another text of one of the forms in the range.
template <auto kField>
bool set_form(Options* options, const OptionRow& row, std::string_view text) {
  return has_form_of(text, row.range) && set_text<kField>(options, row, text);
}

}  // namespace farside
