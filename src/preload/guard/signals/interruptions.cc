#include "preload/guard/signals/interruptions.h"

#include <sys/syscall.h>

#include <cstddef>
#include <cstring>

#include "base/os.h"
#include "preload/guard/signals/signal_masks.h"

namespace farside::preload {
static_assert(offsetof(GuardThread, handlers) == 4 && offsetof(HandlersRunning, sigsys) == 0 &&
                  offsetof(HandlersRunning, sigsys_deferred) == 1 && offsetof(HandlersRunning, sigbus) == 2 &&
                  sizeof(HandlersRunning) == 4 && offsetof(OwnStorage, thread_pointer) == 0 &&
                  offsetof(OwnStorage, base) == 8,
              "the assembly below uses these offsets");
}  // namespace farside::preload

// Between farside_handlers_begin and farside_handlers_end the flags of t_guard.handlers do not tell whether a handler
// runs: before the first store it does already, after the last store it still does.
//
// A handler may interrupt itself (a program's handler of SIGSYS runs inside of it). Only the outer one clears its
// flags.
//
// farside_restorer consists of exactly the instructions by which unwinders recognize a signal frame, and has no call
// frame information; cancellation and exceptions need that to pass through handlers. The nop keeps the address before
// it out of functions that have such information.
//
// own_guard: the address of the calling thread's t_guard in RAX, as of_this_thread() finds it; RCX and R8 change.
//
// In a static program (thread_pointer.h), FS is loaded from GS before, and restored after. If the interrupted code is
// Farside's, both are equal already.
asm(R"(
  .macro own_guard
  movq _ZN7farside7preload7t_guardE@gottpoff(%rip), %rax
  cmpq $0, farside_block_bytes(%rip)
  je 8f
  rdgsbase %rcx
  movq %rcx, %r8
  subq farside_blocks(%rip), %r8
  cmpq farside_block_bytes(%rip), %r8
  jae 8f
  rdfsbase %r8
  cmpq %r8, 0(%rcx)
  jne 8f
  addq 8(%rcx), %rax
  jmp 9f
8:
  addq %fs:0, %rax
9:
  .endm

  .macro load_thread_pointer
  rdfsbase %rax
  rdgsbase %rcx
  pushq %rax
  .cfi_adjust_cfa_offset 8
  cmpq %rax, %rcx
  je 3f
  wrfsbase %rcx
  movq _ZN7farside7preload7t_guardE@gottpoff(%rip), %rcx
  movq %rax, %fs:8(%rcx)
3:
  .endm

  .macro restore_thread_pointer
  popq %rax
  .cfi_adjust_cfa_offset -8
  rdgsbase %rcx
  cmpq %rax, %rcx
  je 5f
  movq _ZN7farside7preload7t_guardE@gottpoff(%rip), %rax
  movq %fs:8(%rax), %rax
  wrfsbase %rax
5:
  .endm

  .macro handler_entry name, entered, flags, handler
  .globl \name
  .hidden \name
  .type \name,@function
\name:
  .cfi_startproc
  cmpb $0, farside_static_program(%rip)
  je 2f
  load_thread_pointer
  call 2f
  jmp 4f
2:
  .cfi_adjust_cfa_offset -8
  own_guard
  movzbl \flags(%rax), %ecx
  movb $1, \flags(%rax)
  .globl \entered
  .hidden \entered
\entered:
  pushq %rcx
  .cfi_adjust_cfa_offset 8
  call \handler
  popq %rcx
  .cfi_adjust_cfa_offset -8
  testb %cl, %cl
  jnz 1f
  own_guard
  movw $0, \flags(%rax)
1:
  ret
4:
  .cfi_adjust_cfa_offset 8
  restore_thread_pointer
  ret
  .cfi_endproc
  .size \name, .-\name
  .endm

  .section farside_syscalls,"ax",@progbits
  .globl farside_handlers_begin
  .hidden farside_handlers_begin
farside_handlers_begin:
  handler_entry farside_enter_sigsys, farside_entered_sigsys, 4, farside_on_sigsys
  handler_entry farside_enter_sigbus, farside_entered_sigbus, 6, farside_on_sigbus

  .globl farside_sigreturn_at
  .hidden farside_sigreturn_at
  .type farside_sigreturn_at,@function
farside_sigreturn_at:
  own_guard
  movw $0, 4(%rax)
  movq %rdi, %rsp
  cmpb $0, farside_static_program(%rip)
  je farside_restorer
  movq 8(%rax), %rax
  wrfsbase %rax
  jmp farside_restorer
  .size farside_sigreturn_at, .-farside_sigreturn_at

  .globl farside_restorer
  .hidden farside_restorer
  .type farside_restorer,@function
  .p2align 4
  nop
farside_restorer:
  movq $15, %rax
  syscall
  .size farside_restorer, .-farside_restorer
  .globl farside_handlers_end
  .hidden farside_handlers_end
farside_handlers_end:

  .globl farside_interruptible_call
  .hidden farside_interruptible_call
  .type farside_interruptible_call,@function
farside_interruptible_call:
  .cfi_startproc
  movq %rsi, %r11
  own_guard
  movq %rax, %rcx
  movq %rdi, %rax
  movq 0(%r11), %rdi
  movq 8(%r11), %rsi
  movq 16(%r11), %rdx
  movq 24(%r11), %r10
  movq 32(%r11), %r8
  movq 40(%r11), %r9
  cmpb $0, 5(%rcx)
  jne farside_call_not_issued
  .globl farside_call_instruction
  .hidden farside_call_instruction
farside_call_instruction:
  syscall
  ret
  .globl farside_call_not_issued
  .hidden farside_call_not_issued
farside_call_not_issued:
  movq $-513, %rax
  ret
  .cfi_endproc
  .size farside_interruptible_call, .-farside_interruptible_call
  .previous
)");

extern "C" {
// Addresses in the assembly above.
extern const char farside_handlers_begin[], farside_handlers_end[];
extern const char farside_entered_sigsys[], farside_entered_sigbus[];
extern const char farside_call_instruction[], farside_call_not_issued[];
}

namespace farside::preload {
namespace {

constexpr int kFirstQueued = 32;  // signals from this number on are queued; of the others one at most is pending

uint64_t address_of(const void* code) { return reinterpret_cast<uint64_t>(code); }
uint64_t address_of(void (*code)(int, siginfo_t*, void*)) { return reinterpret_cast<uint64_t>(code); }

bool between(uint64_t address, uint64_t begin, uint64_t end) { return address >= begin && address < end; }

bool entering(uint64_t rip, void (*handler)(int, siginfo_t*, void*), const char* entered) {
  return between(rip, address_of(handler), address_of(entered));
}

bool is_same(const siginfo_t& a, const siginfo_t& b) {
  constexpr size_t kUsed = 48;  // what the kernel fills for signals that are queued
  return memcmp(&a, &b, kUsed) == 0;
}

// The returned signal is behind those of its number that arrived after it. Each of these is delivered as the one before
// it, until the returned one comes, which is delivered as the last of them.
void keep_order(int signal, siginfo_t* info) {
  ReturnedSignal& r = this_guard().returned;
  if (r.signal != signal) return;
  siginfo_t arrived = *info;
  *info = r.next;
  if (is_same(arrived, r.returned)) r.signal = 0;
  else r.next = arrived;
}

// Sent to the process by kill(), a child's end or a process's timer: any thread may take it. What cannot be
// distinguished from a signal to this thread, or is queued, returns to this thread.
bool is_of_process(int signal, const siginfo_t& info) {
  return signal < kFirstQueued && (info.si_code == SI_USER || info.si_code > 0);
}

bool return_to_queue(int signal, const siginfo_t& info) {
  if (is_of_process(signal, info)) return os::call(SYS_rt_sigqueueinfo, os::getpid(), signal, &info) == 0;
  if (os::call(SYS_rt_tgsigqueueinfo, os::getpid(), os::gettid(), signal, &info) < 0) return false;
  ReturnedSignal& r = this_guard().returned;
  if (signal >= kFirstQueued && r.signal == 0) r = {signal, info, info};
  return true;
}

}  // namespace

bool deferred(int signal, siginfo_t* info, ucontext_t* interrupted) {
  GuardThread& g = this_guard();
  restore_mask_after_wait(interrupted);
  auto rip = static_cast<uint64_t>(interrupted->uc_mcontext.gregs[REG_RIP]);
  bool transition = between(rip, address_of(farside_handlers_begin), address_of(farside_handlers_end));
  bool inside = g.handlers.sigsys || g.handlers.sigbus || transition;
  if (!inside || !return_to_queue(signal, *info)) {
    keep_order(signal, info);
    return false;
  }
  set_mask(interrupted, kAllButOurs);
  if (g.handlers.sigsys || entering(rip, farside_enter_sigsys, farside_entered_sigsys)) {
    g.handlers.sigsys_deferred = 1;
    g.last_deferred = signal;
  }
  if (between(rip, reinterpret_cast<uint64_t>(farside_interruptible_call), address_of(farside_call_instruction) + 1))
    interrupted->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(address_of(farside_call_not_issued));
  return true;
}

void end_wait(ucontext_t* interrupted) {
  GuardThread& g = this_guard();
  memcpy(&g.mask_after_wait, &interrupted->uc_sigmask, sizeof g.mask_after_wait);
  g.wait_ended = true;
  set_mask(interrupted, g.wait_mask);
}

void restore_mask_after_wait(ucontext_t* interrupted) {
  GuardThread& g = this_guard();
  if (!g.wait_ended) return;
  set_mask(interrupted, g.mask_after_wait);
  g.wait_ended = false;
}

}  // namespace farside::preload
