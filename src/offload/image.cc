#include "offload/image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/os.h"

namespace farside::offload {

Result<Image*> Image::read(const char* path) {
  const char* file = path ? path : "/proc/self/exe";
  int fd = os::open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Status::error(-fd, "cannot read {}, whose functions are called on memory servers", file);
  struct stat info = {};
  os::call(SYS_fstat, fd, &info);
  auto size = static_cast<size_t>(info.st_size);
  auto* data = size > 0 ? static_cast<std::byte*>(os::map_near(size)) : nullptr;
  if (!data) {
    os::close(fd);
    return Status::error(ENOMEM, "no memory to read {}, whose functions are called on memory servers", file);
  }
  std::unique_ptr<Image> image(new Image(data, size));
  ssize_t n = 1;
  for (size_t at = 0; n > 0 && at < size; at += static_cast<size_t>(std::max<ssize_t>(n, 0)))
    n = os::read(fd, data + at, size - at);
  os::close(fd);
  if (Status s = n < 0 ? Status::error(static_cast<int>(-n),
                                       "cannot read {}, whose functions are called on memory servers", file)
                       : image->prepare(file);
      !s.ok())
    return s;
  return image.release();
}

Image::~Image() { os::unmap(data_, mapped_); }

// What follows the last segment, such as debug information, is cut off. The dynamic linker refuses to load a program,
// although it has what a shared object has, if this flag is set.
Status Image::prepare(const char* path) {
  Elf64_Ehdr header;
  bool is_elf = mapped_ >= sizeof header && memcmp(data_, ELFMAG, SELFMAG) == 0;
  if (is_elf) memcpy(&header, data_, sizeof header);
  bool fits = is_elf && header.e_phentsize == sizeof(Elf64_Phdr) && header.e_phoff <= mapped_ &&
              header.e_phnum <= (mapped_ - header.e_phoff) / sizeof(Elf64_Phdr);
  if (!fits || header.e_type != ET_DYN) {
    return Status::error(
        ENOEXEC,
        "{} is not position-independent: build it with -fPIE -pie, or put the functions that are called on "
        "memory servers into a shared object",
        path);
  }
  header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
  memcpy(data_, &header, sizeof header);
  for_each_segment([this](const Elf64_Phdr& segment) {
    if (segment.p_type == PT_LOAD) bytes_ = std::max<size_t>(bytes_, segment.p_offset + segment.p_filesz);
    if (segment.p_type != PT_DYNAMIC) return;
    for (size_t at = segment.p_offset; at + sizeof(Elf64_Dyn) <= segment.p_offset + segment.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      memcpy(&entry, data_ + at, sizeof entry);
      if (entry.d_tag == DT_FLAGS_1) entry.d_un.d_val &= ~static_cast<Elf64_Xword>(DF_1_PIE);
      memcpy(data_ + at, &entry, sizeof entry);
    }
  });
  wire::Sha256 hash;
  hash.update(bytes());
  hash_ = hash.finish();
  return {};
}

// The program headers that lie in the file.
template <typename Visit>
void Image::for_each_segment(Visit visit) const {
  Elf64_Ehdr header;
  memcpy(&header, data_, sizeof header);
  for (unsigned i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, data_ + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_offset <= mapped_ && segment.p_filesz <= mapped_ - segment.p_offset) visit(segment);
  }
}

// The file's header differs: prepare() has changed it.
bool Image::is_loaded_at(uintptr_t base) const {
  bool same = true;
  for_each_segment([&](const Elf64_Phdr& segment) {
    bool constant = segment.p_type == PT_LOAD && (segment.p_flags & PF_R) && !(segment.p_flags & PF_W);
    size_t skipped = segment.p_offset < sizeof(Elf64_Ehdr) ? sizeof(Elf64_Ehdr) - segment.p_offset : 0;
    if (!same || !constant || segment.p_filesz <= skipped) return;
    const auto* loaded = reinterpret_cast<const std::byte*>(base + segment.p_vaddr + skipped);
    same = memcmp(loaded, data_ + segment.p_offset + skipped, segment.p_filesz - skipped) == 0;
  });
  return same;
}

}  // namespace farside::offload
