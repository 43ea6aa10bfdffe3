// Whether the preload library can work in a program, as its ELF file tells. The command line checks the program that it
// starts, the preload library those that it starts.
#pragma once
#include <cstddef>

namespace farside {

enum class ProgramKind {
  kServed,
  kNotElf,     // a script, or no program
  kTruncated,  // the ELF header, or the program headers, are incomplete
  k32Bit,
  kOtherProcessor,
  kStatic,     // no dynamic linker, which would preload
  kSanitizer,  // its sanitizer replaces malloc, as Farside does, and has addresses of its own
};

// `file` is the whole file, mapped or read. Every offset in it is checked. Allocates nothing; async-signal-safe.
ProgramKind kind_of_program(const void* file, size_t bytes);

}  // namespace farside
