// The name that was probably meant by a misspelt one: "did you mean --policy?". Ordinary code: allocates.
#pragma once
#include <span>
#include <string_view>

namespace farside {

// The name that differs from `word` by the fewest letters (changed, left out, added, or two exchanged); "" if each
// differs by more than a third of its letters.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names);

}  // namespace farside
