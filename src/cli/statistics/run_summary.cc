#include "cli/statistics/run_summary.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "base/bits.h"
#include "base/size.h"
#include "cli/statistics/report_values.h"
#include "cli/statistics/run_advice.h"
#include "cli/statistics/run_breakdown.h"

namespace farside::cli {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr size_t kLines = 4;  // without --verbose

// ------------------------------------------------------------------------------------------------ memory and loss

std::string name_of(const json& process, size_t processes) {
  return text(process, "program") + (processes > 1 ? fmt::format(", the largest of {} processes", processes) : "");
}

constexpr double kCompressed = 0.95;  // and less: memory is saved

// How the server of the run stored less in RAM than it got.
std::string describe_stored(const StoredMean& stored) {
  double in_file = 100 * stored.file_share(), packed = stored.packed_share();
  std::string file = in_file < 0.5 ? "" : fmt::format(", {:.0f}% of it in the overflow file", in_file);
  if (packed >= kCompressed) return file;
  return fmt::format("{}{} compressed to {:.0f}%", file, file.empty() ? "," : " and the rest", 100 * packed);
}

// What the saved near memory is worth.
std::string real_memory(uint64_t saved, const RunEnd& end) {
  double share = end.stored.used_share();
  switch (end.place) {
    case FarPlace::kThisMachine:
      if (share < kCompressed)
        return fmt::format(", {} of RAM: far memory is in this machine's, too{}",
                           format_size(static_cast<uint64_t>(static_cast<double>(saved) * (1 - share))),
                           describe_stored(end.stored));
      return ", but no RAM: far memory is in this machine's, too; --far names another one";
    case FarPlace::kFile:
      return ", stored in a file of this machine";
    case FarPlace::kElsewhere:
      return ", stored on other machines";
  }
  return "";
}

std::string near_limit(const json& process) {
  uint64_t limit = count(process, "local_bytes");
  return (limit > count(process, "heap_peak_bytes") && count(process, "evictions") > 0) || is_automatic(process)
             ? ""
             : fmt::format(" of {} allowed", format_size(limit));
}

std::string memory_line(const json& process, size_t processes, const RunEnd& end) {
  uint64_t heap = heap_bytes(process), saved = saved_bytes(process);
  if (count(process, "evictions") == 0) {
    std::string why = is_automatic(process)
                          ? fmt::format("--local auto found nothing to save in a heap of {}",
                                        format_size(count(process, "heap_peak_bytes")))
                          : fmt::format("the managed heap of {} never exceeded --local ({})", format_size(heap),
                                        format_size(count(process, "local_bytes")));
    return fmt::format("{}: nothing was evicted: {}", name_of(process, processes), why);
  }
  std::string near =
      fmt::format("{}: {} of a heap of {} near {}{}", name_of(process, processes), format_size(heap - saved),
                  format_size(heap), is_automatic(process) ? "on average" : "at most", near_limit(process));
  if (saved == 0) return near + ": no near memory saved";
  return fmt::format("{}: {} ({:.0f}%) of near memory saved{}", near, format_size(saved),
                     100 * static_cast<double>(saved) / static_cast<double>(heap), real_memory(saved, end));
}

const json& process_that_lost_most(const RunReport& report) {
  return *std::ranges::max_element(report.processes(), {},
                                   [](const json& process) { return loss_of(process).seconds; });
}

// With an automatic size beside what may be lost: a part of the other time, as --slowdown is.
std::string loss_text(const json& process) {
  if (!is_automatic(process)) {
    Loss loss = loss_of(process);
    return fmt::format("{:.2f} s of {:.2f} s ({:.0f}%) lost in faults", loss.seconds, loss.run_seconds,
                       100 * loss.share());
  }
  Loss loss = refault_loss_of(process);
  double accepted = number(process, "slowdown_percent") / 100;
  return fmt::format("{:.2f} s of {:.2f} s lost in faults, of at most {:.2f} s (--slowdown {:.0f}%)", loss.seconds,
                     loss.run_seconds, accepted * (loss.run_seconds - loss.seconds), 100 * accepted);
}

std::string loss_line(const json& process, const json& totals, bool is_main) {
  return fmt::format("{}{}; {} fetched, {} written{}", loss_text(process),
                     count(process, "busiest_thread_fetches") < count(process, "major_faults")
                         ? " of the thread that fetched most"
                         : "",
                     format_size(count(totals, "bytes_fetched")), format_size(count(totals, "bytes_written")),
                     is_main ? "" : fmt::format(" (time of {})", text(process, "program")));
}

// ---------------------------------------------------------------------------------------------------------- notes

std::string describe(const Advice& advice, double run_seconds) {
  if (advice.seconds == 0) return "to do: " + advice.text;
  return fmt::format("to do: {}: saves at most {:.2f} s of {:.2f} s", advice.text, advice.seconds, run_seconds);
}

Lines advice_lines(const RunReport& report, HugePages huge) {
  if (count(report.totals(), "evictions") == 0) return {};
  const json& process = process_that_lost_most(report);
  bool automatic = is_automatic(process);
  Loss loss = automatic ? refault_loss_of(process) : loss_of(process);
  Lines lines;
  for (const Advice& advice : advise(process, huge)) lines.push_back(describe(advice, loss.run_seconds));
  double accepted = automatic ? number(process, "slowdown_percent") / 100 : kWorthwhile;
  if (!lines.empty() || loss.share() >= accepted) return lines;
  lines.emplace_back(automatic ? "to do: nothing; a higher --slowdown saves more near memory"
                               : "to do: nothing; farside plan finds whether less near memory would do");
  return lines;
}

std::string refused_line(const json& totals) {
  uint64_t refused = count(totals, "refused_reservations");
  return refused == 0 ? "" : fmt::format("far memory was full: {} requests for memory were refused", refused);
}

// What a core that the program left has of far memory.
std::string core_line(const RunEnd& end) {
  if (!WIFSIGNALED(end.wait_status) || !WCOREDUMP(end.wait_status) || end.core == CoreContent::kAll) return "";
  return "the core has the pages that were near; far pages read as zeros in it (farside core shows which, --tune "
         "core=all "
         "fetches them)";
}

std::string native_line(const RunReport& report) {
  std::string natives = report.natives();
  return natives.empty() ? "" : "programs that ran natively, without far memory: " + natives;
}

std::string lost_line(const RunReport& report, pid_t program) {
  size_t lost = report.lost(program);
  if (lost == 0) return "";
  return fmt::format("{} process{} ended without a report, as by a signal; {} counters are not in the sums", lost,
                     lost == 1 ? "" : "es", lost == 1 ? "its" : "their");
}

uint64_t unmanaged_bytes(const json& process) {
  return count(process, "unmanaged_shared_bytes") + count(process, "unmanaged_private_bytes") +
         count(process, "unmanaged_data_bytes");
}

// What of the program's memory can never be far, where that is much.
std::string unmanaged_line(const json& process) {
  constexpr uint64_t kMuch = 8 * kMiB;
  uint64_t shared = count(process, "unmanaged_shared_bytes"), own = count(process, "unmanaged_private_bytes"),
           data = count(process, "unmanaged_data_bytes");
  if (unmanaged_bytes(process) < std::max(kMuch, count(process, "heap_peak_bytes") / 10)) return "";
  return fmt::format(
      "near besides, since it cannot be far: at most {} of shared memory, {} of stacks and mappings under 64 KiB, {} "
      "of "
      "data of programs and libraries",
      format_size(shared), format_size(own), format_size(data));
}

// The last line: why the program ended, or why its far memory did.
Lines end_lines(const RunReport& report, const RunEnd& end) {
  Lines lines;
  std::string how = describe_end(end.wait_status);
  if (!how.empty()) lines.push_back(how + (report.has_process(end.program) ? "" : "; its own counters are lost"));
  for (const std::string& reason : report.failures()) lines.push_back("far memory was lost: " + reason);
  return lines;
}

void append(Lines more, Lines* lines) {
  for (std::string& line : more) {
    if (!line.empty()) lines->push_back(std::move(line));
  }
}

Lines memory_and_loss(const RunReport& report, const RunEnd& end) {
  if (report.process_count() == 0) return {};
  Lines lines = {memory_line(report.main_process(), report.process_count(), end)};
  const json& lost_most = process_that_lost_most(report);
  json totals = report.totals();
  if (count(totals, "evictions") > 0)
    lines.push_back(loss_line(lost_most, totals, &lost_most == &report.main_process()));
  return lines;
}

// In the order of their weight: the later ones are printed with --verbose alone where there is no room.
Lines notes(const RunReport& report, const RunEnd& end) {
  Lines lines;
  append({refused_line(report.totals()), core_line(end), native_line(report), lost_line(report, end.program)}, &lines);
  if (report.process_count() == 0) return lines;
  const json& process = report.main_process();
  bool is_mostly_unmanaged = unmanaged_bytes(process) > count(process, "heap_peak_bytes");
  if (is_mostly_unmanaged) append({unmanaged_line(process)}, &lines);
  append(advice_lines(report, end.huge), &lines);
  if (!is_mostly_unmanaged) append({unmanaged_line(process)}, &lines);
  return lines;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += fmt::format("farside: {}\n", line);
  return text;
}

}  // namespace

json StoredMean::to_json() const {
  uint64_t n = std::max<uint64_t>(looks, 1);
  return {{"stored_mean_bytes", bytes / n}, {"used_mean_bytes", used / n}, {"overflow_mean_bytes", overflow / n}};
}

std::string summary(const RunReport& report, const RunEnd& end) {
  Lines lines = memory_and_loss(report, end), more = notes(report, end), last = end_lines(report, end);
  size_t used = lines.size() + last.size(), room = kLines > used ? kLines - used : 0;
  if (!end.verbose && more.size() > room) more.resize(room);
  append(std::move(more), &lines);
  if (end.verbose && report.process_count() > 0) append(breakdown(report), &lines);
  append(std::move(last), &lines);
  if (lines.empty()) lines.emplace_back("no process wrote a report: none ended by exit or from main");
  return joined(lines);
}

}  // namespace farside::cli
