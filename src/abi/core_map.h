// The list of far memory in a core dump. The preload library writes it when a signal is about to dump core, into a
// mapping of its own, so the mapping's program header in the core leads to it; `farside core` reads it.
//   header | ranges, neither sorted nor joined
#pragma once
#include <cstdint>

namespace farside {

struct CoreMapHeader {
  static constexpr uint64_t kMagic[2] = {0x2065'6469'7372'6166, 0x3170'616d'2065'726f};  // "farside " "ore map1"
  uint64_t magic[2] = {kMagic[0], kMagic[1]};
  uint64_t ranges = 0;
  uint64_t reserved = 0;
};

// Addresses whose content was on the memory server: the core has a hole there, which reads as zeros.
struct CoreMapRange {
  uint64_t begin, end;
};

static_assert(sizeof(CoreMapHeader) == 32 && sizeof(CoreMapRange) == 16);

}  // namespace farside
