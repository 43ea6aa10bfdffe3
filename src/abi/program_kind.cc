#include "abi/program_kind.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

#ifndef DF_1_PIE
#define DF_1_PIE 0x08000000
#endif

namespace farside {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#else
constexpr uint16_t kMachine = EM_AARCH64;
#endif

// An ELF file for reading. Structures are copied, since they need not be aligned.
class ElfFile {
 public:
  ElfFile(const void* file, size_t bytes) : file_(static_cast<const char*>(file)), bytes_(bytes) {
    complete_ = read(0, &header_);
  }
  bool is_complete() const { return complete_; }
  const Elf64_Ehdr& header() const { return header_; }

  // The first program header of a type for which accept(segment) is true.
  template <typename Accept>
  bool find_segment(uint32_t type, Elf64_Phdr* segment, Accept accept) const {
    for (unsigned i = 0; i < header_.e_phnum; i++) {
      if (!read(header_.e_phoff + uint64_t{i} * header_.e_phentsize, segment)) return false;
      if (segment->p_type == type && accept(*segment)) return true;
    }
    return false;
  }

  // ET_DYN is also the type of shared libraries.
  bool is_position_independent_program() const {
    Elf64_Phdr dynamic;
    if (!find_segment(PT_DYNAMIC, &dynamic, [](const Elf64_Phdr&) { return true; })) return true;
    Elf64_Dyn entry;
    for (uint64_t at = 0; at < dynamic.p_filesz && read(dynamic.p_offset + at, &entry); at += sizeof entry) {
      if (entry.d_tag == DT_FLAGS_1) return (entry.d_un.d_val & DF_1_PIE) != 0;
    }
    return false;
  }

  // The strings of the dynamic section: names of libraries, and of symbols that are imported or exported.
  bool dynamic_strings(const char** text, size_t* size) const {
    Elf64_Phdr dynamic;
    if (!find_segment(PT_DYNAMIC, &dynamic, [](const Elf64_Phdr&) { return true; })) return false;
    uint64_t address = 0, length = 0;
    Elf64_Dyn entry;
    for (uint64_t at = 0; at < dynamic.p_filesz && read(dynamic.p_offset + at, &entry); at += sizeof entry) {
      if (entry.d_tag == DT_STRTAB) address = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRSZ) length = entry.d_un.d_val;
    }
    Elf64_Phdr load;
    auto has_strings = [&](const Elf64_Phdr& s) { return address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz; };
    if (!find_segment(PT_LOAD, &load, has_strings)) return false;
    uint64_t offset = load.p_offset + (address - load.p_vaddr);
    if (offset > bytes_ || bytes_ - offset < length) return false;
    *text = file_ + offset;
    *size = length;
    return true;
  }

 private:
  template <typename T>
  bool read(uint64_t offset, T* value) const {
    if (offset > bytes_ || bytes_ - offset < sizeof *value) return false;
    memcpy(value, file_ + offset, sizeof *value);
    return true;
  }
  const char* file_;
  size_t bytes_;
  bool complete_;
  Elf64_Ehdr header_ = {};
};

// Functions by which a program begins to use its sanitizer.
bool has_sanitizer(const ElfFile& elf) {
  const char* text;
  size_t bytes;
  if (!elf.dynamic_strings(&text, &bytes)) return false;
  for (const char* name : {"__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"}) {
    if (memmem(text, bytes, name, strlen(name))) return true;
  }
  return false;
}

}  // namespace

ProgramKind kind_of_program(const void* file, size_t bytes) {
  if (bytes < EI_NIDENT || memcmp(file, ELFMAG, SELFMAG) != 0)
    return bytes >= SELFMAG && memcmp(file, ELFMAG, SELFMAG) == 0 ? ProgramKind::kTruncated : ProgramKind::kNotElf;
  ElfFile elf(file, bytes);
  const unsigned char* identity = static_cast<const unsigned char*>(file);
  if (identity[EI_CLASS] == ELFCLASS32) return ProgramKind::k32Bit;
  if (!elf.is_complete()) return ProgramKind::kTruncated;
  if (identity[EI_DATA] != ELFDATA2LSB || elf.header().e_machine != kMachine) return ProgramKind::kOtherProcessor;
  const Elf64_Ehdr& header = elf.header();
  if (header.e_phoff > bytes || uint64_t{header.e_phnum} * header.e_phentsize > bytes - header.e_phoff)
    return ProgramKind::kTruncated;
  uint16_t type = header.e_type;
  if ((type != ET_EXEC && type != ET_DYN) || header.e_phnum == 0) return ProgramKind::kNotElf;
  Elf64_Phdr linker;
  bool has_linker = elf.find_segment(PT_INTERP, &linker, [](const Elf64_Phdr&) { return true; });
  // The dynamic linker itself, as in `ld.so PROGRAM`, preloads.
  if (!has_linker && type == ET_DYN && !elf.is_position_independent_program()) return ProgramKind::kServed;
  if (!has_linker) return ProgramKind::kStatic;
  return has_sanitizer(elf) ? ProgramKind::kSanitizer : ProgramKind::kServed;
}

}  // namespace farside
