#include "preload/guard/signals/signal_frames.h"

#include <ucontext.h>

#include <cstddef>
#include <cstring>

#include "base/bits.h"
#include "preload/guard/signals/program_actions.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"

// RBX: the frame; R12: the signal; R13: FS as it was, in a static program; R14, R15: where the frame has the
// information and the context. The signal frame restores all registers, so none is saved.
asm(R"(
  .text
  .globl farside_enter_signal
  .hidden farside_enter_signal
  .type farside_enter_signal,@function
farside_enter_signal:
  .cfi_startproc
  movq %rsp, %rbx
  movl %edi, %r12d
  movq %rsi, %r14
  subq %rbx, %r14
  movq %rdx, %r15
  subq %rbx, %r15
  cmpb $0, farside_static_program(%rip)
  je 1f
  rdfsbase %r13
  rdgsbase %rcx
  cmpq %r13, %rcx
  je 1f
  wrfsbase %rcx
  movq _ZN7farside7preload7t_guardE@gottpoff(%rip), %rcx
  movq %r13, %fs:8(%rcx)
1:
  movl %r12d, %edi
  movq %rbx, %rsi
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call farside_place_frame
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  movq %rax, %rsp
  movq %rax, %rbx
  movl %r12d, %edi
  leaq (%rbx,%r14), %rsi
  leaq (%rbx,%r15), %rdx
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call farside_on_signal
  movq %rbx, %rdi
  call farside_room_for_frame
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  cmpq %rax, %rbx
  je 2f
  movq %rax, %rsp
  movq %rbx, %rdi
  movq %rax, %rsi
  movq %rax, %rbx
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call farside_copy_frame
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
2:
  cmpb $0, farside_static_program(%rip)
  je 3f
  rdgsbase %rcx
  cmpq %r13, %rcx
  je 3f
  movq _ZN7farside7preload7t_guardE@gottpoff(%rip), %rax
  movq %fs:8(%rax), %rax
  wrfsbase %rax
3:
  ret
  .cfi_endproc
  .size farside_enter_signal, .-farside_enter_signal
)");

namespace farside::preload {
namespace {

// struct rt_sigframe of the kernel. Above it is the processor's extended state, to which the registers point.
struct SignalFrame {
  void* return_address;
  unsigned long flags;
  void* link;
  stack_t stack;
  mcontext_t registers;
  os::SignalSet mask;
  siginfo_t info;
};
static_assert(sizeof(mcontext_t) == 256 && offsetof(SignalFrame, info) == 312 && sizeof(SignalFrame) == 440);

constexpr uint64_t kRedZone = 128;

// The state begins with 512 bytes, the last 48 of which are the kernel's: a mark, and the size of all of it.
size_t state_bytes(const SignalFrame& frame) {
  constexpr size_t kShort = 512, kOfKernel = 464, kMax = 64 * kKiB;
  constexpr uint32_t kMark = 0x46505853;  // FP_XSTATE_MAGIC1
  auto* state = reinterpret_cast<const std::byte*>(frame.registers.fpregs);
  if (!state) return 0;
  uint32_t marked[2];
  memcpy(marked, state + kOfKernel, sizeof marked);
  return marked[0] == kMark && marked[1] >= kShort && marked[1] <= kMax ? marked[1] : kShort;
}

// As the kernel places a frame below a stack pointer.
SignalFrame* frame_below(uint64_t top, size_t state_bytes) {
  constexpr uint64_t kStateAlignment = 64;
  uint64_t state = align_down(top - state_bytes, kStateAlignment);
  return reinterpret_cast<SignalFrame*>(align_down(state - sizeof(SignalFrame), 16) - 8);
}

std::byte* state_above(const SignalFrame* frame) {
  return reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(frame + 1), 64));
}

}  // namespace

extern "C" void farside_copy_frame(const SignalFrame* from, SignalFrame* to) {
  size_t bytes = state_bytes(*from);
  std::byte* state = state_above(to);
  *to = *from;
  if (bytes == 0) return;
  memcpy(state, from->registers.fpregs, bytes);
  to->registers.fpregs = reinterpret_cast<fpregset_t>(state);
}

// Returns where the handler is to find the frame that the kernel wrote.
extern "C" SignalFrame* farside_place_frame(int signal, SignalFrame* frame) {
  auto interrupted = static_cast<uint64_t>(frame->registers.gregs[REG_RSP]);
  if (!on_alternate_stack(reinterpret_cast<uint64_t>(frame)) || on_alternate_stack(interrupted)) return frame;
  if (this_guard().app_stack != 0 && wants_alternate_stack(signal)) return frame;
  SignalFrame* placed = frame_below(interrupted - kRedZone, state_bytes(*frame));
  farside_copy_frame(frame, placed);
  return placed;
}

namespace {
bool is_frame_far(const SignalFrame* frame) {
  return is_far(frame) || is_far(frame + 1) || is_far(frame->registers.fpregs);
}
}  // namespace

// Returns where the kernel is to read the frame. All signals are blocked, and nothing else is on the alternate stack.
extern "C" SignalFrame* farside_room_for_frame(SignalFrame* frame) {
  if (!is_frame_far(frame) || on_alternate_stack(reinterpret_cast<uint64_t>(frame)) || this_guard().stack_high == 0)
    return frame;
  return frame_below(this_guard().stack_high, state_bytes(*frame));
}

// The lower half of the alternate stack, whose upper half the caller uses.
uint64_t near_frame(uint64_t stack_pointer) {
  auto* frame = reinterpret_cast<SignalFrame*>(stack_pointer - sizeof(void*));  // the return address was popped
  if (!is_frame_far(frame)) return stack_pointer;
  SignalFrame* copy = frame_below((this_guard().stack_low + this_guard().stack_high) / 2, state_bytes(*frame));
  farside_copy_frame(frame, copy);
  return reinterpret_cast<uint64_t>(copy) + sizeof(void*);
}

}  // namespace farside::preload
