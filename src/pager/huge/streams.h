// Recognizes streams by one thread's faults, for whole huge pages: faults that follow each other at short distances in
// one direction. prefetch.h finds out more (strides, windows); this finds what has passed enough pages to fetch huge
// pages at once. Several streams may take turns, as where a program copies or merges. A stream leaves no far page
// behind: faults at random places of a small block are near each other as well, and are no stream.
//
// Not thread-safe. Makes no system calls. Async-signal-safe.
#pragma once
#include <cstdint>

#include "pager/huge/huge_table.h"

namespace farside::pager {

class HugeStreams {
 public:
  struct Stream {
    int64_t next = -1;    // page whose fault continues the stream; -1: unused
    int direction = 0;    // 1 or -1; 0: one fault was seen
    unsigned passed = 0;  // pages, up to kSure
    bool writes = false;  // the program wrote pages that were fetched for reads
    uint32_t age = 0;
    bool is_sure() const { return passed >= kSure; }
  };
  static constexpr unsigned kSure = 192;  // pages: three windows

  // Records a fault, and returns its stream; the reference is valid until the next fault. is_passed(begin, end):
  // whether no page of [begin, end) is far.
  template <typename IsPassed>
  Stream& on_fault(PageIndex index, IsPassed is_passed) {
    auto page = static_cast<int64_t>(index);
    Stream* oldest = &streams_[0];
    for (Stream& s : streams_) {
      if (continues(s, page) && (page > s.next ? is_passed(s.next, page) : is_passed(page + 1, s.next + 1)))
        return *(current_ = &advance(s, page));
      if (priority_of(s) < priority_of(*oldest)) oldest = &s;
    }
    *oldest = Stream{page, 0, 0, false, ++clock_};
    return *(current_ = oldest);
  }
  // The stream of the last fault.
  Stream& current() { return *current_; }

  // The stream has the pages up to the end of `huge page`: its next fault is at the first page beyond.
  static void pass_huge(Stream& s, HugeIndex huge) {
    s.next = s.direction > 0 ? int64_t{first_page(huge)} + kHugePages : int64_t{first_page(huge)} - 1;
    s.passed = kSure;
  }

  // The program wrote to a huge page that was fetched for reads: the stream that fetched it will write the next one.
  void record_write(HugeIndex huge) {
    for (Stream& s : streams_) {
      if (s.next < 0 || !s.is_sure()) continue;
      auto at = static_cast<HugeIndex>(s.next / kHugePages);
      if (at == huge + static_cast<HugeIndex>(s.direction)) s.writes = true;
    }
  }

 private:
  static constexpr unsigned kStreams = 8;
  static constexpr int64_t kReach = 80;  // pages beyond `next`: a window, and some that were near already

  static bool continues(const Stream& s, int64_t page) {
    if (s.next < 0) return false;
    int64_t distance = page - s.next;
    if (s.direction == 0) return distance != 0 && distance >= -kReach && distance <= kReach;
    distance *= s.direction;
    if (s.is_sure() && distance >= kHugePages) distance -= kHugePages;  // another thread completed a huge page
    return distance >= 0 && distance <= kReach;
  }

  // The one with the least is replaced. Faults at random places between those of a stream must not displace it.
  int64_t priority_of(const Stream& s) const {
    constexpr uint32_t kPatience = 4096;  // faults
    uint32_t idle = clock_ - s.age;
    return -static_cast<int64_t>(idle) + (s.is_sure() && idle < kPatience ? 2 * int64_t{kPatience} : 0);
  }

  Stream& advance(Stream& s, int64_t page) {
    int64_t distance = page - s.next;
    if (s.direction == 0) s.direction = distance > 0 ? 1 : -1;
    s.passed += static_cast<unsigned>(distance > 0 ? distance : -distance) + 1;
    if (s.passed > kSure) s.passed = kSure;
    s.next = page + s.direction;
    s.age = ++clock_;
    return s;
  }

  Stream streams_[kStreams];
  Stream* current_ = &streams_[0];
  uint32_t clock_ = 0;
};

}  // namespace farside::pager
