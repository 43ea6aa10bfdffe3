#include "preload/heap/near_stack.h"

#include <sys/mman.h>

#include "base/os.h"

// farside_call_on_stack(top, function, argument): top is a multiple of 16.
asm(R"(
  .pushsection .text
  .type farside_call_on_stack, @function
farside_call_on_stack:
  .cfi_startproc
  pushq %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  movq %rdi, %rsp
  movq %rdx, %rdi
  callq *%rsi
  movq %rbp, %rsp
  popq %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size farside_call_on_stack, . - farside_call_on_stack
  .popsection
)");
extern "C" void farside_call_on_stack(void* top, void (*function)(void*), void* argument);

namespace farside::preload {

void call_on_near_stack(void (*function)(void*), void* argument) {
  constexpr size_t kBytes = 128 * 1024;
  long stack = os::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (os::is_error(stack)) return function(argument);
  farside_call_on_stack(reinterpret_cast<std::byte*>(stack) + kBytes, function, argument);
  os::munmap(reinterpret_cast<void*>(stack), kBytes);
}

}  // namespace farside::preload
