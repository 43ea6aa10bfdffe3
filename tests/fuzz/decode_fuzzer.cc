// libFuzzer target for the codec; how to build and run it is in docs/internals/testing.md.
#include "decode_one.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  farside::testing::decode_one(std::as_bytes(std::span(data, size)));
  return 0;
}
