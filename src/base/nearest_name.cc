#include "base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace farside {
namespace {

// The least number of changes of one letter, or exchanges of two neighbours, that make `a` of `b`: row by row of the
// table of all prefixes.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) above[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names) {
  std::string_view best;
  size_t fewest = ~size_t{0};
  for (std::string_view name : names) {
    size_t changes = distance(word, name);
    if (changes >= fewest || 3 * changes > std::max(word.size(), name.size())) continue;
    best = name;
    fewest = changes;
  }
  return best;
}

}  // namespace farside
