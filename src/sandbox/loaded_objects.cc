#include "sandbox/loaded_objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "sandbox/host_io.h"

namespace farside::sandbox {

void LoadedObjects::load(int count) {
  for (count_ = 0; count_ < count; count_++) {
    char name[16];
    snprintf(name, sizeof name, "/%d.so", count_);
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    link_map* map = nullptr;
    if (handle && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
      bases_[count_] = map->l_addr;
      continue;
    }
    report_loading(-ENOEXEC, "the server cannot load the program or shared object: ", dlerror());
    _exit(1);
  }
}

void* LoadedObjects::code_at(uint32_t object, uint64_t offset) const {
  if (object >= static_cast<uint32_t>(count_)) return nullptr;
  struct Search {
    ElfW(Addr) base, offset;
    bool found;
  } search = {bases_[object], offset, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        if (info->dlpi_addr != s->base) return 0;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const ElfW(Phdr)& p = info->dlpi_phdr[i];
          bool code = p.p_type == PT_LOAD && (p.p_flags & PF_X);
          s->found |= code && s->offset >= p.p_vaddr && s->offset - p.p_vaddr < p.p_memsz;
        }
        return 1;
      },
      &search);
  return search.found ? reinterpret_cast<void*>(search.base + offset) : nullptr;
}

}  // namespace farside::sandbox
