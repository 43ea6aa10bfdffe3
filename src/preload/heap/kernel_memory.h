// Far memory that becomes memory of the kernel's alone: near, at the same addresses, with its content and attributes.
// The kernel lets one userfaultfd watch an area, so it becomes of memory that the program watches by one of its own.
// Thread-safe. What other threads write meanwhile may be lost.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside::preload {

// Whether pages that hold zeros are mapped afterwards. They may have been made near ahead of their use.
enum class ZeroPages { kMapped, kUnmapped };

// All far memory of the range. False: nothing is mapped there, or there is not enough memory.
bool give_to_kernel(void* address, size_t bytes, ZeroPages zeros);

// To be called before a range of the malloc heap is freed: what was given becomes far again, and empty.
void take_back_from_kernel(void* address, size_t bytes);

}  // namespace farside::preload
