// libFuzzer target for the codec; docs/internals/testing.md describes how to build and run it.
#include "decode_one.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  farside::testing::decode_one(std::as_bytes(std::span(data, size)));
  return 0;
}
