// The programs and shared objects of a client, loaded into the isolated process.
#pragma once
#include <link.h>

#include <cstdint>

#include "wire/protocol.h"

namespace farside::sandbox {

class LoadedObjects {
 public:
  // Loads /0.so and so on, and runs their constructors. Ends the process if one cannot be loaded.
  void load(int count);
  // The address of an offset that lies in code of an object; null: it does not.
  void* code_at(uint32_t object, uint64_t offset) const;

 private:
  ElfW(Addr) bases_[wire::kMaxCallObjects];
  int count_ = 0;
};

}  // namespace farside::sandbox
