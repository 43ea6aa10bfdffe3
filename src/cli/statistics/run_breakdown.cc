#include "cli/statistics/run_breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/bits.h"
#include "base/size.h"
#include "cli/statistics/report_values.h"

namespace farside::cli {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

std::string bytes(const json& from, const char* name) { return format_size(count(from, name)); }

std::string share(uint64_t part, uint64_t whole) {
  return whole == 0 ? "none" : fmt::format("{:.0f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string mode_line(const json& process, const json& totals, size_t processes) {
  std::string reason = text(process, "mode_reason");
  std::string line = fmt::format("{}: {} mode", text(process, "program"), text(process, "mode"));
  if (!reason.empty()) line += fmt::format(" ({})", reason);
  line += fmt::format(", {}, {:.1f} s", text(process, "transport"), number(totals, "seconds"));
  if (processes > 1) line += fmt::format("; figures are sums over {} processes, peaks those of the largest", processes);
  return line;
}

std::string memory_line(const json& process, const json& totals) {
  bool lowered = count(process, "near_peak_bytes") > count(process, "local_bytes");  // by farside ctl
  return fmt::format("frames {} at most of {} allowed{}, far {} at most; heap {} at most; tables {}",
                     bytes(totals, "near_peak_bytes"), bytes(process, "local_bytes"), lowered ? " in the end" : "",
                     bytes(totals, "far_peak_bytes"), bytes(totals, "heap_peak_bytes"),
                     bytes(process, "metadata_bytes"));
}

Lines traffic_lines(const json& totals) {
  uint64_t evictions = count(totals, "evictions"), prefetched = count(totals, "prefetched");
  Lines lines = {
      fmt::format("{} faults: {} fetched, {} fresh, {} first writes; {} pages prefetched, {} of them used",
                  count(totals, "faults"), count(totals, "major_faults"), count(totals, "zero_faults"),
                  count(totals, "protection_faults"), prefetched, share(count(totals, "prefetch_used"), prefetched)),
      fmt::format("{} evictions, {} dirty; {} fetched, {} written", evictions,
                  share(count(totals, "dirty_evictions"), evictions), bytes(totals, "bytes_fetched"),
                  bytes(totals, "bytes_written"))};
  if (uint64_t huge = count(totals, "huge_pages_fetched") + count(totals, "huge_pages_filled"); huge > 0) {
    lines.push_back(fmt::format("huge pages: {} fetched, {} fresh, {} evicted whole, {} divided",
                                count(totals, "huge_pages_fetched"), count(totals, "huge_pages_filled"),
                                count(totals, "huge_pages_evicted"), count(totals, "huge_pages_broken")));
  }
  lines.push_back(fmt::format("{:.2f} s in faults, {:.2f} s of them waiting for a free frame",
                              number(totals, "fault_us") / 1e6, number(totals, "wait_frame_us") / 1e6));
  return lines;
}

// Of servers that were lost.
std::string copies_line(const json& totals) {
  uint64_t repaired = count(totals, "repaired_slabs"), degraded = count(totals, "degraded_slabs");
  if (repaired + degraded == 0) return "";
  return fmt::format("replicas: {} lost copies of 16 MiB were made anew, {} slabs had fewer copies in the end",
                     repaired, degraded);
}

std::string per(const json& totals, uint64_t events, std::initializer_list<std::pair<const char*, const char*>> parts) {
  std::string text;
  for (const auto& [name, member] : parts) {
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name,
                        number(totals, member) / static_cast<double>(std::max<uint64_t>(events, 1)));
  }
  return text;
}

// The time of a fault and of an evicted page by phase, as MAGE figures 6 and 16.
Lines time_lines(const json& totals) {
  uint64_t evictions = count(totals, "evictions"), faults = count(totals, "faults");
  std::string faults_line =
      fmt::format("us per fault: {}; within Farside p50 {:.1f}, p99 {:.1f}; p99 of waiting for a frame {:.1f}",
                  per(totals, faults,
                      {{"signal", "signal_us"},
                       {"lookup", "lookup_us"},
                       {"frame", "wait_frame_us"},
                       {"transport", "fetch_us"},
                       {"other's page", "wait_page_us"},
                       {"map", "map_us"},
                       {"account", "account_us"},
                       {"return", "return_us"}}),
                  number(totals, "fault_p50_us"), number(totals, "fault_p99_us"), number(totals, "frame_wait_p99_us"));
  double cycles = number(totals, "evictor_cpu_us") * number(totals, "cycles_per_us");
  return {faults_line, fmt::format("us per evicted page: {}; {:.1f} pages a batch, {:.2f} cycles a byte",
                                   per(totals, evictions,
                                       {{"select", "select_us"},
                                        {"hold", "hold_us"},
                                        {"unmap", "unmap_us"},
                                        {"write", "write_us"},
                                        {"release", "release_us"},
                                        {"processor", "evictor_cpu_us"}}),
                                   static_cast<double>(evictions) / std::max(1.0, number(totals, "batches")),
                                   cycles / static_cast<double>(evictions * kPageSize))};
}

}  // namespace

Lines breakdown(const RunReport& report) {
  const json& process = report.main_process();
  json sums = report.totals();
  Lines lines = {mode_line(process, sums, report.process_count()), memory_line(process, sums)};
  if (std::string copies = copies_line(sums); !copies.empty()) lines.push_back(std::move(copies));
  if (count(sums, "evictions") == 0) return lines;
  for (const Lines& more : {traffic_lines(sums), time_lines(sums)}) lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

}  // namespace farside::cli
