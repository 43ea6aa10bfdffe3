#include "preload/guard/thread/thread_pointer.h"

#include <asm/prctl.h>
#include <sys/auxv.h>

#include <cerrno>
#include <cstddef>

#include "base/bits.h"
#include "base/thread_storage.h"

extern "C" {
__attribute__((visibility("hidden"))) char farside_static_program = 0;
}

namespace farside::preload {

static_assert(offsetof(GuardThread, program_thread_pointer) == 8, "the assembly uses this offset");

asm(R"(
  .text
  .globl farside_call_handler
  .hidden farside_call_handler
  .type farside_call_handler,@function
farside_call_handler:
  .cfi_startproc
  movq %rdi, %rax
  movl %esi, %edi
  movq %rdx, %rsi
  movq %rcx, %rdx
  cmpb $0, farside_static_program(%rip)
  jne 1f
  jmp *%rax
1:
  movq _ZN7farside7preload7t_guardE@gottpoff(%rip), %rcx
  movq %fs:8(%rcx), %rcx
  wrfsbase %rcx
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call *%rax
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  rdgsbase %rcx
  wrfsbase %rcx
  ret
  .cfi_endproc
  .size farside_call_handler, .-farside_call_handler
)");

namespace {

uint64_t read_fs() {
  uint64_t base;
  asm volatile("rdfsbase %0" : "=r"(base));
  return base;
}

void write_gs(uint64_t base) { asm volatile("wrgsbase %0" : : "r"(base)); }

}  // namespace

bool can_switch_thread_pointers() {
  constexpr unsigned long kFsGsBase = 2;  // HWCAP2_FSGSBASE
  return (getauxval(AT_HWCAP2) & kFsGsBase) != 0 && can_make_thread_storage();
}

void begin_static_program() {
  write_gs(read_fs());
  this_guard().program_thread_pointer = 0;
  farside_static_program = 1;
}

void begin_thread_of_static_program(uint64_t program_thread_pointer) {
  write_gs(read_fs());
  this_guard().program_thread_pointer = program_thread_pointer;
}

long thread_pointer_call(int operation, uint64_t address) {
  switch (operation) {
    case ARCH_SET_FS:
      this_guard().program_thread_pointer = address;
      return 0;
    case ARCH_GET_FS:
      *reinterpret_cast<uint64_t*>(address) = this_guard().program_thread_pointer;
      return 0;
    case ARCH_GET_GS:
      *reinterpret_cast<uint64_t*>(address) = 0;
      return 0;
    default:
      return operation == ARCH_SET_GS ? -EPERM : -EINVAL;
  }
}

}  // namespace farside::preload
