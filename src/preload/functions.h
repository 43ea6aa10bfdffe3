// Where functions are that are called on memory servers: the program or shared object, as it is sent, and the offset in
// it. Objects may be unloaded, and others loaded at their place. Thread-safe.
#pragma once
#include <memory>

#include "base/sync.h"
#include "offload/image.h"

namespace farside::preload {

struct FunctionPlace {
  std::shared_ptr<const offload::Image> image;
  uint64_t offset = 0;  // from the address at which the object is loaded
};

class Functions {
 public:
  // The place of code that is loaded. ENOEXEC: it is in no object; the object's file is another one than that which was
  // loaded, or is no ELF file that can be loaded elsewhere.
  Status find(const void* address, FunctionPlace* place);
  // In a forked child, whose other threads may have held the lock.
  void reset_in_child() { new (&lock_) Mutex; }

 private:
  struct Object {
    uintptr_t base = 0;
    std::shared_ptr<const offload::Image> image;
  };
  struct Known {
    const void* address = nullptr;
    unsigned object = 0;
  };
  void forget_unloaded() REQUIRES(lock_);
  Status add(uintptr_t base, const char* path, unsigned* object) REQUIRES(lock_);

  static constexpr unsigned kObjects = 8, kKnown = 64;
  Mutex lock_;
  unsigned long long unloads_ GUARDED_BY(lock_) = 0;  // of this process, when objects_ and known_ were valid last
  Object objects_[kObjects] GUARDED_BY(lock_);
  unsigned next_ GUARDED_BY(lock_) = 0;    // the object that is replaced next
  Known known_[kKnown] GUARDED_BY(lock_);  // by address: a symbol search takes longer than a call
};

}  // namespace farside::preload
