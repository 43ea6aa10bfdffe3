#include "preload/static_program/elf_image.h"

#include <elf.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bits.h"
#include "base/os.h"

namespace farside::preload {
namespace {

constexpr unsigned kMaxSegments = 64;

class Image {
 public:
  Image(const char* path, int fd) : path_(path), fd_(fd) {}

  Result<ElfImage> map() {
    Status status = read_headers();
    if (status.ok()) status = reserve();
    for (unsigned i = 0; status.ok() && i < header_.e_phnum; i++) {
      if (segments_[i].p_type == PT_LOAD) status = map_segment(segments_[i]);
    }
    if (!status.ok()) return status;
    return ElfImage{base_ + header_.e_entry, address_of_headers(), header_.e_phnum, executes_stack()};
  }

 private:
  bool read(void* to, size_t bytes, uint64_t offset) {
    return os::call(SYS_pread64, fd_, to, bytes, offset) == static_cast<long>(bytes);
  }

  Status not_executable(const char* problem) { return Status::error(ENOEXEC, "{}: {}", path_, problem); }

  Status read_headers() {
    if (!read(&header_, sizeof header_, 0) || memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0)
      return not_executable("not an ELF file");
    bool suitable = header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_machine == EM_X86_64 &&
                    (header_.e_type == ET_EXEC || header_.e_type == ET_DYN) &&
                    header_.e_phentsize == sizeof segments_[0];
    if (!suitable || header_.e_phnum == 0 || header_.e_phnum > kMaxSegments)
      return not_executable("not a 64-bit executable for this processor");
    if (!read(segments_, header_.e_phnum * sizeof segments_[0], header_.e_phoff))
      return not_executable("cut short: its program headers are incomplete");
    for (unsigned i = 0; i < header_.e_phnum; i++) {
      const Elf64_Phdr& s = segments_[i];
      if (s.p_type == PT_INTERP) return not_executable("not a static executable");
      if (s.p_type != PT_LOAD) continue;
      constexpr uint64_t kMaxAddress = uint64_t{1} << 47;
      if (s.p_vaddr >= kMaxAddress || s.p_memsz >= kMaxAddress || s.p_filesz > s.p_memsz ||
          (s.p_vaddr - s.p_offset) % kPageSize != 0)
        return not_executable("damaged: a segment has an impossible address or size");
      begin_ = std::min(begin_, align_down(s.p_vaddr, kPageSize));
      end_ = std::max(end_, align_up(s.p_vaddr + s.p_memsz, kPageSize));
      alignment_ = std::max(alignment_, s.p_align);
    }
    return begin_ < end_ ? Status() : not_executable("it has no segment to load");
  }

  // Takes the addresses of all segments, so that no other mapping can get between.
  Status reserve() {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t bytes = end_ - begin_;
    if (header_.e_type == ET_EXEC) {
      long r = os::mmap(reinterpret_cast<void*>(begin_), bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
      if (r == static_cast<long>(begin_)) return {};
      return Status::error(EEXIST, "{}: its addresses {:#x} to {:#x} are in use", path_, begin_, end_);
    }
    long r = os::mmap(nullptr, bytes + alignment_, PROT_NONE, kFlags, -1, 0);
    if (r < 0) return Status::error(static_cast<int>(-r), "{}: no memory for its segments", path_);
    base_ = align_up(static_cast<uint64_t>(r), alignment_) - begin_;
    return {};
  }

  Status map_segment(const Elf64_Phdr& s) {
    int protection =
        (s.p_flags & PF_R ? PROT_READ : 0) | (s.p_flags & PF_W ? PROT_WRITE : 0) | (s.p_flags & PF_X ? PROT_EXEC : 0);
    uint64_t address = base_ + s.p_vaddr, begin = align_down(address, kPageSize);
    uint64_t data_end = address + s.p_filesz, end = align_up(address + s.p_memsz, kPageSize);
    uint64_t next = begin;  // what follows is not in the file
    if (s.p_filesz > 0) {
      next = align_up(data_end, kPageSize);
      Status mapped = map_at(begin, data_end, protection, MAP_PRIVATE, fd_, align_down(s.p_offset, kPageSize));
      if (!mapped.ok()) return mapped;
      if (s.p_memsz > s.p_filesz && (protection & PROT_WRITE))
        memset(reinterpret_cast<void*>(data_end), 0, next - data_end);
    }
    return next < end ? map_at(next, end, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : Status();
  }

  Status map_at(uint64_t begin, uint64_t end, int protection, int flags, int fd, uint64_t offset) {
    long r = os::mmap(reinterpret_cast<void*>(begin), end - begin, protection, flags | MAP_FIXED, fd,
                      static_cast<off_t>(offset));
    if (r == static_cast<long>(begin)) return {};
    return Status::error(static_cast<int>(-r), "{}: cannot map its segment at {:#x} (error {})", path_, begin, -r);
  }

  bool executes_stack() const {
    for (unsigned i = 0; i < header_.e_phnum; i++) {
      if (segments_[i].p_type == PT_GNU_STACK) return (segments_[i].p_flags & PF_X) != 0;
    }
    return false;
  }

  uint64_t address_of_headers() const {
    for (unsigned i = 0; i < header_.e_phnum; i++) {
      const Elf64_Phdr& s = segments_[i];
      if (s.p_type == PT_LOAD && header_.e_phoff >= s.p_offset && header_.e_phoff - s.p_offset < s.p_filesz)
        return base_ + s.p_vaddr + (header_.e_phoff - s.p_offset);
    }
    return 0;
  }

  const char* path_;
  int fd_;
  Elf64_Ehdr header_ = {};
  Elf64_Phdr segments_[kMaxSegments] = {};
  uint64_t begin_ = ~uint64_t{0}, end_ = 0, alignment_ = kPageSize;
  uint64_t base_ = 0;  // added to the addresses in the file
};

}  // namespace

Result<ElfImage> map_executable(const char* path, int fd) { return Image(path, fd).map(); }

}  // namespace farside::preload
