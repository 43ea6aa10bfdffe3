// The file that a process writes for `farside plan`: from when on the pages of a sample were far, and when
// they were used again (pager/evict/sampler.h, docs/internals/sampling.md). It is mapped while the process runs, so it
// is complete however the process ends. Of `farside plan -p` it is a memfd of the process, with the name below.
//
//   file:  header | events, in the order in which they were added
//
// Clusters of neighbouring pages are sampled, so that streams remain visible: those whose hash is not above a
// threshold (SHARDS, FAST'15), which falls as the heap grows. A slice of the sample, by other bits of the hash, is a
// smaller sample by itself; a round makes one slice far.
//
// Writer and reader are of the same build and run on the same machine.
#pragma once
#include <atomic>
#include <cstdint>

namespace farside {

inline constexpr char kSampleFileName[] = "farside-samples";

enum class SampleKind : uint32_t {
  kNone,  // not written
  // The value is a page.
  kFarClean,  // made far; it was not written to since it was fetched
  kFarDirty,  // made far, and written back
  kFarStill,  // was not used since it was made far: its next use counts from here, too
  kFetched,   // used for the first time since it was made far
  kTouched,   // used for the first time of all
  // The value is a state from now on. A round begins with all of these, kRound last. Times are modulo 2^32.
  kThreshold,  // of the sample
  kLostUs,     // all threads have lost so much time in faults since the start
  kRanUs,      // they have run for so long, faults included
  kPopulated,  // pages of the heap
  kRound,      // its slice
};

//   0        8       12     16
//   | ticks | value | kind |
struct SampleEvent {
  std::atomic<uint64_t> ticks;
  std::atomic<uint32_t> value;
  std::atomic<SampleKind> kind;  // written last
};
static_assert(sizeof(SampleEvent) == 16);

struct SampleHeader {
  static constexpr uint64_t kMagic = 0x31'656c706d617366;  // changes with the format
  uint64_t magic;
  uint32_t pid, is_full;
  double ticks_per_us;
  std::atomic<uint64_t> events;  // begun to be written
};
static_assert(sizeof(SampleHeader) == 32);

inline constexpr uint64_t kSampleEventsAt = 4096;  // their place in the file
inline constexpr uint32_t kSampleCluster = 16;     // pages
inline constexpr uint32_t kSampleAll = ~uint32_t{0};

constexpr uint32_t sample_hash(uint32_t page) {
  uint32_t hash = (page / kSampleCluster + 1) * 0x9e3779b1u;
  hash = (hash ^ hash >> 15) * 0x85ebca6bu;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
  return hash ^ hash >> 16;
}
inline constexpr uint32_t kSampleSlices = 16;
constexpr uint32_t sample_slice(uint32_t page) { return sample_hash(page) % kSampleSlices; }
constexpr bool is_sampled(uint32_t page, uint32_t threshold) { return sample_hash(page) <= threshold; }

}  // namespace farside
