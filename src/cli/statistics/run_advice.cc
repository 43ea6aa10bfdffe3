#include "cli/statistics/run_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bits.h"
#include "base/size.h"
#include "cli/statistics/report_values.h"

namespace farside::cli {
namespace {

using nlohmann::json;

constexpr double kUsualFetchUs = 50;       // over TCP in one data centre
constexpr uint64_t kHugeFrom = 32 * kMiB;  // of near memory

double ratio(double part, double whole) { return whole > 0 ? std::min(1.0, part / whole) : 0; }

// Times of faults are sums over threads. The busiest thread's part of them is that of its fetches.
double busiest_part(const json& report) {
  double fetches = number(report, "major_faults"), busiest = number(report, "busiest_thread_fetches");
  return fetches > 0 && busiest > 0 ? ratio(busiest, fetches) : 1;
}

// How the time of the busiest thread in faults is composed, in seconds.
struct FaultTime {
  double fetches, first_touches, first_writes, transport, frames;
};

FaultTime fault_time(const json& report) {
  double us = busiest_part(report) / 1e6;
  double waits = number(report, "fetch_us") + number(report, "wait_frame_us") + number(report, "wait_page_us");
  double whole = loss_of(report).seconds, other = std::max(0.0, whole - waits * us);
  double faults = number(report, "faults"), writes = number(report, "protection_faults");
  double touches = std::max(0.0, faults - writes - number(report, "major_faults") - number(report, "wait_faults"));
  double touches_seconds = other * ratio(touches, faults), writes_seconds = other * ratio(writes, faults);
  return {.fetches = std::max(0.0, whole - touches_seconds - writes_seconds),
          .first_touches = touches_seconds,
          .first_writes = writes_seconds,
          .transport = number(report, "fetch_us") * us,
          .frames = number(report, "wait_frame_us") * us};
}

std::string option_size(uint64_t bytes) { return fmt::format("{}M", (bytes + kMiB - 1) / kMiB); }

void add_more_near(const json& report, const FaultTime& time, std::vector<Advice>* list) {
  uint64_t all = count(report, "heap_peak_bytes") + count(report, "metadata_bytes");
  if (count(report, "major_faults") == 0 || is_automatic(report) || count(report, "local_bytes") >= all) return;
  list->push_back({fmt::format("--local {} keeps all of the heap near; farside plan finds how much of it is enough",
                               option_size(all)),
                   time.fetches});
}

// Near memory follows what the program uses, but not faster than the program uses something else.
void add_target(const json& report, std::vector<Advice>* list) {
  if (!is_automatic(report)) return;
  double accepted = number(report, "slowdown_percent") / 100;
  Loss loss = refault_loss_of(report);
  double useful = loss.run_seconds - loss.seconds;
  if (loss.seconds <= accepted * useful) return;
  list->push_back(
      {"--local 100% keeps all of it near: what the program uses changes faster than near memory can follow",
       loss.seconds});
}

void add_huge_pages(const json& report, HugePages huge, const FaultTime& time, std::vector<Advice>* list) {
  bool has_huge = count(report, "huge_pages_filled") + count(report, "huge_pages_fetched") > 0;
  if (has_huge || count(report, "heap_peak_bytes") < kHugeFrom) return;
  std::string what = huge == HugePages::kNever ? "--huge auto or always" : "--huge always";
  if (count(report, "local_bytes") < kHugeFrom) what += " and --local 32M or more";
  list->push_back({what + ": memory that is first touched comes in 2 MiB", time.first_touches});
}

void add_frames(const FaultTime& time, std::vector<Advice>* list) {
  list->push_back({"--tune evictors=2 or more, if processors are idle: threads waited for free frames", time.frames});
}

void add_hints(const json& report, const FaultTime& time, std::vector<Advice>* list) {
  list->push_back({"hints for writing, at the lines that farside trace names: pages were read first, then written",
                   time.first_writes});
  bool random = number(report, "prefetched") < number(report, "major_faults");
  if (!random) return;
  list->push_back({"hints ahead of accesses that no stream foretells, at the lines that farside trace names",
                   std::min(time.fetches, time.transport)});
}

// A fetch that takes long.
void add_other_server(const json& report, const FaultTime& time, std::vector<Advice>* list) {
  double fetch_us = number(report, "fetch_us") / std::max(1.0, number(report, "major_faults"));
  if (fetch_us < 4 * kUsualFetchUs) return;
  list->push_back({fmt::format("a nearer or less busy server: a fetch took {:.0f} us, {:.0f} are usual over TCP",
                               fetch_us, kUsualFetchUs),
                   time.transport * (1 - kUsualFetchUs / fetch_us)});
}

// Random accesses that move whole pages.
void add_objects(const json& report, const FaultTime& time, std::vector<Advice>* list) {
  if (number(report, "prefetched") * 4 > number(report, "major_faults") || count(report, "subpage_reads") > 0) return;
  list->push_back({fmt::format("far objects (docs/guide/objects.md), if the program can be changed: {} were fetched by "
                               "whole pages",
                               format_size(count(report, "bytes_fetched"))),
                   time.transport});
}

void add_prefetching(const json& report, std::vector<Advice>* list) {
  double prefetched = number(report, "prefetched"), unused = prefetched - number(report, "prefetch_used");
  if (unused < 0.5 * prefetched || unused * kPageSize < static_cast<double>(kMiB)) return;
  list->push_back({fmt::format("--tune prefetch=off: {} fetched ahead were not used",
                               format_size(static_cast<uint64_t>(unused) * kPageSize)),
                   0});
}

}  // namespace

Loss loss_of(const json& report) {
  double us = number(report, "fault_us") + number(report, "signal_us") + number(report, "return_us");
  double seconds = number(report, "seconds");
  return {std::min(us * busiest_part(report) / 1e6, seconds), seconds};
}

bool is_automatic(const json& report) { return count(report, "slowdown_percent") > 0; }

Loss refault_loss_of(const json& report) {
  Loss loss = loss_of(report);
  double touched = number(report, "first_touch_us") / 1e6 * busiest_part(report);
  return {std::max(0.0, loss.seconds - touched), loss.run_seconds};
}

uint64_t heap_bytes(const json& report) {
  return count(report, is_automatic(report) ? "heap_mean_bytes" : "heap_peak_bytes");
}

uint64_t saved_bytes(const json& report) {
  uint64_t near = count(report, "near_mean_bytes") + count(report, "metadata_bytes"), heap = heap_bytes(report);
  return count(report, "evictions") > 0 && heap > near ? heap - near : 0;
}

std::vector<Advice> advise(const json& report, HugePages huge) {
  FaultTime time = fault_time(report);
  std::vector<Advice> list;
  add_more_near(report, time, &list);
  add_target(report, &list);
  add_huge_pages(report, huge, time, &list);
  add_frames(time, &list);
  add_hints(report, time, &list);
  add_other_server(report, time, &list);
  add_objects(report, time, &list);
  double least = kWorthwhile * loss_of(report).run_seconds;
  std::erase_if(list, [&](const Advice& advice) { return advice.seconds <= least; });
  std::ranges::stable_sort(list, std::greater(), &Advice::seconds);
  add_prefetching(report, &list);
  return list;
}

}  // namespace farside::cli
