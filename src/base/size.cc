#include "base/size.h"

#include <cctype>
#include <cmath>
#include <cstdlib>

namespace farside {
namespace {

// Reads a non-negative decimal number. Returns the number of characters it has; 0: there is none.
size_t read_number(std::string_view text, double* value) {
  size_t i = 0;
  double number = 0, scale = 1;
  bool digits = false, fraction = false;
  for (; i < text.size(); i++) {
    char c = text[i];
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (c >= '0' && c <= '9') {
      digits = true;
      if (fraction) number += (c - '0') * (scale /= 10);
      else number = number * 10 + (c - '0');
    } else {
      break;
    }
  }
  *value = number;
  return digits ? i : 0;
}

// The factor of a suffix; 0: not a suffix.
double suffix_factor(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 1;
  static constexpr std::string_view kLetters = "KMGT";
  size_t power = kLetters.find(static_cast<char>(toupper(suffix[0])));
  std::string_view rest = suffix.substr(1);
  if (power == kLetters.npos || !(rest.empty() || rest == "B" || rest == "iB" || rest == "b" || rest == "ib")) return 0;
  return std::pow(1024.0, static_cast<double>(power + 1));
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  double number = 0;
  size_t used = read_number(text, &number);
  double factor = used ? suffix_factor(text.substr(used)) : 0;
  if (factor == 0)
    return Status::error(EINVAL, "'{}' is not a size; write a number and K, M, G or T, as in 256M", text);
  if (number * factor >= 9e18) return Status::error(ERANGE, "'{}' is too large for a size in bytes", text);
  return static_cast<uint64_t>(number * factor);
}

namespace {

Result<SizeOrShare> parse_automatic(std::string_view limits) {
  size_t dash = limits.find('-');
  if (dash == limits.npos)
    return Status::error(EINVAL, "'auto:{}' lacks a limit; write auto or auto:MIN-MAX, as in auto:64M-1G", limits);
  Result<uint64_t> least = parse_size(limits.substr(0, dash)), most = parse_size(limits.substr(dash + 1));
  if (!least.ok()) return least.status();
  if (!most.ok()) return most.status();
  if (*least > *most) return Status::error(EINVAL, "'auto:{}' has a minimum above the maximum; swap them", limits);
  return SizeOrShare{*most, SizeOrShare::kAutomatic, *least};
}

}  // namespace

Result<SizeOrShare> parse_size_or_share(std::string_view text) {
  constexpr std::string_view kAuto = "auto";
  if (text == kAuto) return SizeOrShare{0, SizeOrShare::kAutomatic};
  if (text.starts_with("auto:")) return parse_automatic(text.substr(kAuto.size() + 1));
  if (!text.empty() && text.back() == '%') {
    double percent = 0;
    size_t used = read_number(text, &percent);
    if (used != text.size() - 1 || percent <= 0 || percent > 100) {
      return Status::error(EINVAL, "'{}' is not a share; write a percentage above 0 and up to 100, as in 25%", text);
    }
    return SizeOrShare{0, percent / 100};
  }
  Result<uint64_t> bytes = parse_size(text);
  if (!bytes.ok()) return Status::error(EINVAL, "'{}' is neither a size nor a share; write 256M, 25% or auto", text);
  return SizeOrShare{*bytes, 0};
}

std::string format_size(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit++;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return value < 10 ? fmt::format("{:.2f} {}", value, kUnits[unit]) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace farside
