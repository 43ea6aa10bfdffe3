// The ranges of the client's region that the isolated process has mapped. Those of a call are at their places, which
// are their addresses in the client; an access to others ends the process. Used by one thread.
//
// Ranges of earlier calls are parked: moved to other addresses with their page tables, so that a later call that has
// them takes no page faults. The region's addresses are reserved by a mapping without access, unless something else is
// there. Small ranges that are read are opened in it by mprotect, which keeps their page table entries: used again,
// they take no page faults.
#pragma once
#include <cstdint>

#include "wire/codec.h"

namespace farside::sandbox {

class MappedRanges {
 public:
  // Reserves the addresses of a region. False: something else is there.
  bool reserve(uint64_t address, uint64_t bytes);

  // Maps the ranges of a call, and no others. False, with errno: none is mapped.
  bool map(const wire::CallPayload& call);
  // After a call whose ranges were others than those of the call before: the next one most likely has others as well,
  // and what it would wait for is done now.
  void prepare_next();

 private:
  struct Mapping {
    wire::CallRange range;
    char* at;            // where it is now
    bool is_wanted;      // by this call
    uint64_t last_call;  // that had it
  };
  static constexpr uint32_t kMaxMappings = 2 * wire::kMaxCallRanges;

  char* place_of(const wire::CallRange& range) const { return reinterpret_cast<char*>(region_ + range.offset); }
  bool is_parked(const Mapping& m) const { return m.at != place_of(m.range); }
  void reserve_place(const wire::CallRange& r);
  void drop(uint32_t index);
  void close_opened();
  void unmap_all();
  bool move_to(Mapping& m, char* to);
  bool park(Mapping& m);
  void park_unwanted();
  void drop_oldest();
  Mapping* find(const wire::CallRange& range);
  void note_wanted(const wire::CallPayload& call);
  bool map_range(const wire::CallRange& r);
  bool map_changed(const wire::CallPayload& call);

  uint64_t region_ = 0;  // address of its byte 0
  bool is_reserved_ = false;
  bool has_changed_ = false;  // by the last call
  uint64_t changes_ = 0;
  uint32_t mapping_count_ = 0, last_count_ = 0, opened_count_ = 0;
  Mapping mappings_[kMaxMappings];
  wire::CallRange last_[wire::kMaxCallRanges];  // of the last call
  wire::CallRange opened_[wire::kMaxCallRanges];
};

}  // namespace farside::sandbox
