#include "preload/functions.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>

namespace farside::preload {
namespace {

// How many objects were unloaded in this process.
unsigned long long unloads() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<unsigned long long*>(to) = info->dlpi_subs;
        return 1;
      },
      &count);
  return count;
}

size_t slot_of(const void* address, size_t slots) { return reinterpret_cast<uintptr_t>(address) / 16 % slots; }

}  // namespace

Status Functions::find(const void* address, FunctionPlace* place) {
  LockGuard hold(lock_);
  forget_unloaded();
  Known& known = known_[slot_of(address, kKnown)];
  if (known.address != address) {
    Dl_info info;
    link_map* map = nullptr;
    if (!dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) || !map)
      return Status::error(ENOEXEC,
                           "a function that is called on a memory server is in no loaded program or shared object");
    auto* found =
        std::find_if(objects_, objects_ + kObjects, [&](const Object& o) { return o.image && o.base == map->l_addr; });
    auto object = static_cast<unsigned>(found - objects_);
    if (object == kObjects) {
      if (Status s = add(map->l_addr, map->l_name[0] ? map->l_name : nullptr, &object); !s.ok()) return s;
    }
    known = {address, object};
  }
  const Object& object = objects_[known.object];
  *place = {object.image, reinterpret_cast<uintptr_t>(address) - object.base};
  return {};
}

// An object that was unloaded may have been loaded again, at its place or elsewhere, or another one at its place.
void Functions::forget_unloaded() {
  unsigned long long now = unloads();
  if (now == unloads_) return;
  unloads_ = now;
  std::fill(known_, known_ + kKnown, Known());
  std::fill(objects_, objects_ + kObjects, Object());
}

Status Functions::add(uintptr_t base, const char* path, unsigned* object) {
  Result<offload::Image*> read = offload::Image::read(path);
  if (!read.ok()) return read.status();
  std::shared_ptr<const offload::Image> image(*read);
  if (!image->is_loaded_at(base))
    return Status::error(ENOEXEC,
                         "{} has changed since it was loaded, so its functions cannot be called on memory servers; "
                         "start the program again",
                         path ? path : "the program");
  *object = next_;
  next_ = (next_ + 1) % kObjects;
  for (Known& known : known_) {
    if (known.object == *object) known = Known();
  }
  objects_[*object] = {base, std::move(image)};
  return {};
}

}  // namespace farside::preload
