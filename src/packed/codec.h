// Compression of one page: pages of one repeated word are stored as that word, others by LZ4. unpack_page() is
// async-signal-safe; it reads and writes only within its buffers, whatever the bytes are.
#pragma once
#include <cstddef>

#include "packed/layout.h"

namespace farside::packed {

inline constexpr size_t kMaxPackedBytes = 3 * kPageBytes / 4;  // else the page is not worth it

// Writes at most kMaxPackedBytes. Returns how many; 0: the page cannot be compressed. Uses 16 KiB of stack.
size_t pack_page(const std::byte* page, std::byte* to);
// False: these bytes are no page.
bool unpack_page(const std::byte* from, size_t bytes, std::byte* page);

}  // namespace farside::packed
