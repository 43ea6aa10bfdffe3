// Apart from codec.cc, so that clients do not link what compresses.
#include <zstd.h>

#include <new>

#include "packed/codec.h"

namespace farside::packed {

ZstdPacker::~ZstdPacker() { ZSTD_freeCCtx(context_); }

// A block without the header of a frame, which has nothing that is not known.
size_t ZstdPacker::pack(const std::byte* page, std::byte* to) {
  constexpr int kLevel = 3;  // higher levels gain 3 % and take twice as long
  if (!context_ && !(context_ = ZSTD_createCCtx())) throw std::bad_alloc();
  ZSTD_parameters parameters = ZSTD_getParams(kLevel, kPageBytes, 0);
  parameters.fParams = {};
  size_t r = ZSTD_compressBegin_advanced(context_, nullptr, 0, parameters, kPageBytes);
  if (!ZSTD_isError(r)) r = ZSTD_compressBlock(context_, to, kMaxPackedBytes, page, kPageBytes);
  constexpr size_t kWordBytes = sizeof(uint64_t);  // means something else (codec.cc)
  return ZSTD_isError(r) || r <= kWordBytes ? 0 : r;
}

}  // namespace farside::packed
