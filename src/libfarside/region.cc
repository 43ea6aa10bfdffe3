// Regions are private mappings of the whole capacity, of which the first part is accessible. Under Farside the preload
// library places such mappings in far space, so this code is the same in both cases; only the policy needs a call.
// Not synchronized: calls that change one region must not overlap (farside.h).
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "farside/farside.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

struct farside_region {
  char* data;
  size_t bytes, capacity;  // multiples of kPage; capacity is at least kMinCapacity
};

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMinCapacity = 64 * 1024;  // the preload library leaves smaller mappings near

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

int free_after_error(farside_region* region, int error) {
  if (region->data != MAP_FAILED) munmap(region->data, region->capacity);
  free(region);
  return error;
}

bool is_policy(const char* name) {
  const char* const kNames[] = {"fifo", "lru", "priority", "2q"};
  for (const char* known : kNames) {
    if (strcmp(name, known) == 0) return true;
  }
  return false;
}

}  // namespace

extern "C" {

FARSIDE_PUBLIC int farside_region_create(farside_region** region, size_t bytes, size_t capacity, const char* policy) {
  if (bytes > capacity || capacity == 0 || capacity > SIZE_MAX - kPage) return -EINVAL;
  if (policy && !is_policy(policy)) return -EINVAL;
  auto* made = static_cast<farside_region*>(malloc(sizeof(farside_region)));
  if (!made) return -ENOMEM;
  made->bytes = 0;
  made->capacity = whole_pages(capacity < kMinCapacity ? kMinCapacity : capacity);
  void* data = mmap(nullptr, made->capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  made->data = static_cast<char*>(data);
  if (data == MAP_FAILED) return free_after_error(made, -ENOMEM);
  int error = policy ? farside_region_set_policy_(data, made->capacity, policy) : 0;
  if (error != 0) return free_after_error(made, error);
  error = farside_region_resize(made, bytes);
  if (error != 0) {
    farside_region_set_policy_(data, made->capacity, nullptr);
    return free_after_error(made, error);
  }
  *region = made;
  return 0;
}

FARSIDE_PUBLIC void* farside_region_data(const farside_region* region) { return region->data; }

FARSIDE_PUBLIC size_t farside_region_size(const farside_region* region) { return region->bytes; }

FARSIDE_PUBLIC int farside_region_resize(farside_region* region, size_t bytes) {
  if (bytes > region->capacity) return -EINVAL;
  size_t wanted = whole_pages(bytes);
  if (wanted > region->bytes &&
      mprotect(region->data + region->bytes, wanted - region->bytes, PROT_READ | PROT_WRITE) != 0)
    return -errno;
  if (wanted < region->bytes) {
    size_t cut = region->bytes - wanted;
    if (madvise(region->data + wanted, cut, MADV_DONTNEED) != 0 || mprotect(region->data + wanted, cut, PROT_NONE) != 0)
      return -errno;
  }
  region->bytes = wanted;
  return 0;
}

FARSIDE_PUBLIC void farside_region_destroy(farside_region* region) {
  if (!region) return;
  farside_region_set_policy_(region->data, region->capacity, nullptr);
  munmap(region->data, region->capacity);
  free(region);
}
}
