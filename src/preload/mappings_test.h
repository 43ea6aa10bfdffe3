// For tests of the mmap family.
#pragma once
#include <sys/mman.h>

#include "preload/heap/mappings.h"
#include "preload/test_support.h"

namespace farside::preload {

inline constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
inline constexpr int kReadWrite = PROT_READ | PROT_WRITE;
inline constexpr size_t kMinFar = 64 * kKiB;

inline char* pointer(long r) { return reinterpret_cast<char*>(r); }

class MappingsTest : public testing::Test {
 protected:
  char* map(size_t bytes, int protection = kReadWrite, int flags = kAnonymous, void* place = nullptr) {
    long r = far_mmap(place, bytes, protection, flags, -1, 0);
    EXPECT_FALSE(os::is_error(r)) << r;
    return pointer(r);
  }
  bool committed(const char* at, size_t bytes) {
    return pager_->addresses().is_committed(reinterpret_cast<const std::byte*>(at), bytes);
  }
  GuardedPager& pager_ = GuardedPager::get();
};

}  // namespace farside::preload
