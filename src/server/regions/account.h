// The memory that clients make the server use: the data of regions, which is reserved ahead, and the overhead, which is
// what the server and the kernel need to describe it (files, page indexes, bitmaps of snapshots). Accounts form a
// chain: a program with its forked children, the holders of a token, then the whole server; what is charged to one is
// charged to all of them. Lock-free and thread-safe, since writes to overlays charge without the pool's mutex.
//
//   0                                capacity           capacity + headroom
//   | data                           |                  |
//   | data + overhead                |                  | is_exhausted
#pragma once
#include <atomic>
#include <cstdint>

#include "wire/protocol.h"

namespace farside::server {

class Account {
 public:
  static constexpr uint64_t kUnlimited = uint64_t{1} << 62;

  explicit Account(uint64_t capacity, Account* parent = nullptr) : capacity_(capacity), parent_(parent) {}
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  uint64_t capacity() const { return capacity_.load(std::memory_order_relaxed); }
  void set_capacity(uint64_t bytes) { capacity_ = bytes; }
  uint64_t data() const { return data_.load(std::memory_order_relaxed); }
  uint64_t overhead() const { return overhead_.load(std::memory_order_relaxed); }

  // Charges data. On failure nothing is charged, and the account that has no room is returned.
  const Account* try_charge(uint64_t bytes) {
    uint64_t now = data();
    do {
      if (uint64_t most = capacity(); now > most || bytes > most - now || now + bytes + overhead() > limit())
        return this;
    } while (!data_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    const Account* full = parent_ ? parent_->try_charge(bytes) : nullptr;
    if (full) data_.fetch_sub(bytes, std::memory_order_relaxed);
    return full;
  }

  // Replace a charge, even if that exceeds the capacity.
  void correct(uint64_t from, uint64_t to) {
    for (Account* a = this; a; a = a->parent_) a->data_.fetch_add(to - from, std::memory_order_relaxed);
  }
  void correct_overhead(uint64_t from, uint64_t to) {
    for (Account* a = this; a; a = a->parent_) a->overhead_.fetch_add(to - from, std::memory_order_relaxed);
  }

  // Nothing that needs more overhead may be done.
  bool is_exhausted() const { return data() + overhead() >= limit() || (parent_ && parent_->is_exhausted()); }

 private:
  // A server whose memory is all reserved must still be able to describe what it has.
  uint64_t limit() const { return capacity() + capacity() / 16 + wire::kSlabBytes; }

  std::atomic<uint64_t> capacity_;
  Account* const parent_;
  std::atomic<uint64_t> data_{0}, overhead_{0};
};

}  // namespace farside::server
