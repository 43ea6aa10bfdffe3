// An owner's word: the address, size and slot of its object. include/farside/object.h has a picture; its inline deref
// decodes the word.
#pragma once
#include <atomic>
#include <cstdint>

namespace farside::objects {

class PtrWord {
 public:
  static constexpr unsigned kAddressShift = 16;
  static constexpr uint64_t kMoving = uint64_t{1} << kAddressShift;  // the mark: a thread moves the object
  static constexpr size_t kUnit = 16;

  constexpr PtrWord() = default;
  constexpr explicit PtrWord(uint64_t bits) : bits_(bits) {}
  static PtrWord make(uint64_t address, size_t bytes, unsigned slot) {
    return PtrWord(address << kAddressShift | (bytes + kUnit - 1) / kUnit << 8 | slot);
  }
  static PtrWord make_huge(uint64_t address) { return PtrWord(address << kAddressShift); }

  constexpr uint64_t bits() const { return bits_; }
  constexpr bool is_null() const { return bits_ == 0; }
  constexpr bool is_moving() const { return (bits_ & kMoving) != 0; }
  constexpr uint64_t address() const { return (bits_ & ~kMoving) >> kAddressShift; }
  constexpr size_t units() const { return bits_ >> 8 & 0xff; }
  constexpr size_t bytes() const { return units() * kUnit; }
  constexpr unsigned slot() const { return bits_ & 0xff; }
  constexpr PtrWord moving() const { return PtrWord(bits_ | kMoving); }
  constexpr bool operator==(PtrWord other) const { return bits_ == other.bits_; }

 private:
  uint64_t bits_ = 0;
};

// Accesses to the word in memory. The program declares owners as plain 64-bit integers.
inline PtrWord load_owner(const uint64_t* owner) { return PtrWord(__atomic_load_n(owner, __ATOMIC_ACQUIRE)); }
inline void store_owner(uint64_t* owner, PtrWord word) { __atomic_store_n(owner, word.bits(), __ATOMIC_RELEASE); }
inline bool change_owner(uint64_t* owner, PtrWord expected, PtrWord desired) {
  uint64_t bits = expected.bits();
  return __atomic_compare_exchange_n(owner, &bits, desired.bits(), false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}

}  // namespace farside::objects
