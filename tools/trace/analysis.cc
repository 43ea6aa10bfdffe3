#include "tools/trace/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace farside::trace {
namespace {

constexpr int kHintReach = 10;  // maximum distance in lines between a hint and its place

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool starts_with_any(const std::string& text, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](const char* b) { return text.starts_with(b); });
}

bool is_system_module(const std::string& module, const std::string& program) {
  if (module == program) return false;
  return module.empty() || module[0] != '/' || starts_with_any(module, {"/lib", "/usr/lib", "/usr/local/lib"});
}

bool is_system_source(const std::string& file) {
  return starts_with_any(file, {"/usr/include", "/usr/lib", "/usr/local/include"});
}

// Code of libc before main() and before a thread's function.
bool is_start(const Frame& frame) {
  return starts_with_any(frame.function, {"_start", "__libc_start", "start_thread", "clone", "__clone"});
}

// Functions such as zmalloc, by which many places allocate.
bool is_allocator(const Frame& frame) {
  std::string name = brief_name(frame.function);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("alloc") != name.npos;
}

// The functions of the header, and wrappers of the program that were inlined.
bool is_hint_code(const Frame& frame) {
  if (frame.function.starts_with("farside_hint")) return true;
  return frame.inlined && brief_name(frame.function).find("hint") != std::string::npos;
}

// The frame that names an allocation: its place or, if that is an allocator of the program, its caller.
const Frame& allocating_frame(const std::vector<Frame>& stack, const std::string& program) {
  size_t at = find_place(stack, program);
  auto found = std::find_if(stack.begin() + static_cast<ptrdiff_t>(at), stack.end(), [&](const Frame& f) {
    return !is_allocator(f) && !is_system_module(f.module, program) && !is_system_source(f.file);
  });
  return found == stack.end() ? stack[at] : *found;
}

// The data of one line, collected from call stacks, threads and processes.
struct Gathered {
  Place place;
  std::map<std::string, uint64_t> inner;
  std::map<std::string, Data> data;
  std::set<std::pair<uint32_t, uint32_t>> threads;
};

// Sums over the processes of a run.
class Analyzer {
 public:
  void add(const Process& process, Symbols& symbols) {
    process_ = &process;
    symbols_ = &symbols;
    stacks_.clear();
    result_.processes++;
    result_.dropped += process.header.dropped;
    near_limit_ = std::max(near_limit_, process.header.near_limit_bytes);
    for (const auto& entry : process.entries) add_entry(entry);
    add_hints();
  }

  Analysis finish() {
    for (auto& [key, gathered] : places_) result_.places.push_back(settle(gathered));
    auto more = [](const Place& a, const Place& b) { return a.total() > b.total(); };
    std::stable_sort(result_.places.begin(), result_.places.end(), more);
    for (auto& [frames, faults] : folded_) result_.stacks.push_back({frames, faults});
    for (auto& [where, hint] : hints_) result_.hints.push_back(hint);
    result_.threads = static_cast<unsigned>(threads_.size());
    return std::move(result_);
  }

 private:
  const std::vector<Frame>& frames_of(uint64_t key) {
    auto found = stacks_.find(key);
    if (found != stacks_.end()) return found->second;
    auto stack = process_->stacks.find(key);
    std::vector<Frame> frames;
    if (stack != process_->stacks.end()) frames = symbols_->stack(stack->second);
    if (frames.empty()) frames.push_back({"?", "", 0, "", false});
    return stacks_[key] = std::move(frames);
  }

  void add_entry(const TraceEntry& entry) {
    const std::vector<Frame>& frames = frames_of(entry.stack);
    auto kind = static_cast<size_t>(entry.kind) % kTraceKinds;
    size_t at = find_place(frames, process_->program);
    Gathered& g = gathered_at(frames[at]);
    g.place.faults[kind] += entry.count;
    g.place.steps.add(entry.pattern);
    g.threads.insert({process_->header.pid, entry.thread});
    threads_.insert({process_->header.pid, entry.thread});
    std::string inner =
        at == 0 ? "" : fmt::format("{} of {}", brief_name(frames[0].function), base_name(frames[0].module));
    g.inner[inner] += entry.count;
    for (const auto& site : entry.sites) add_data(g, site);
    folded_[folded(frames)][kind] += entry.count;
    result_.faults += entry.count;
  }

  Gathered& gathered_at(const Frame& where) {
    std::string key =
        fmt::format("{}:{}:{}:{}", where.file, where.line, where.line ? "" : where.function, where.module);
    Gathered& g = places_[key];
    g.place.where = where;
    result_.lines_known |= where.line != 0 && !is_system_module(where.module, process_->program);
    return g;
  }

  void add_data(Gathered& g, const TraceEntry::SiteCount& count) {
    if (count.count == 0 || count.site >= process_->sites.size()) return;
    const TraceSite& site = process_->sites[count.site];
    const std::vector<Frame>& frames = frames_of(site.stack);
    std::string text = short_text(allocating_frame(frames, process_->program));
    Data& data = g.data[text];
    data.site = text;
    data.faults += count.count;
    bytes_of_site_[text][{process_->header.pid, count.site}] = site.bytes;
  }

  std::vector<std::string> folded(const std::vector<Frame>& frames) const {
    std::vector<std::string> texts = {base_name(process_->program)};
    size_t count = frames.size();
    while (count > 1 && is_start(frames[count - 1])) count--;
    while (count > 0) texts.push_back(short_text(frames[--count]));
    return texts;
  }

  void add_hints() {
    for (const HintPlace& place : symbols_->hint_places()) {
      if (is_hint_code({place.function, "", 0, "", false})) continue;  // inside the header's own functions
      Frame frame = {place.function, place.file, place.line, "", false};
      hints_[hint_key(frame)].where = short_text(frame);
      hint_lines_[place.file].insert(place.line);
    }
    for (const auto& hint : process_->hints) {
      std::vector<Frame> frames = symbols_->frames_at(hint.return_address, true);
      auto caller = std::find_if_not(frames.begin(), frames.end(), is_hint_code);
      if (caller == frames.end()) continue;
      HintUse& use = hints_[hint_key(*caller)];
      use.where = short_text(*caller);
      use.calls += hint.calls;
      use.fetched += hint.fetched;
      if (caller->line) hint_lines_[caller->file].insert(caller->line);
    }
  }
  static std::string hint_key(const Frame& frame) {
    return frame.line ? fmt::format("{}:{}", frame.file, frame.line) : frame.function;
  }

  Place settle(Gathered& g) {
    Place& place = g.place;
    place.threads = static_cast<unsigned>(g.threads.size());
    place.pattern = classify(place.steps);
    auto common =
        std::max_element(g.inner.begin(), g.inner.end(), [](auto& a, auto& b) { return a.second < b.second; });
    place.inner = common->first;
    for (auto& [text, data] : g.data) {
      for (auto& [site, bytes] : bytes_of_site_[text]) data.bytes += bytes;
      place.data.push_back(data);
    }
    std::stable_sort(place.data.begin(), place.data.end(),
                     [](const Data& a, const Data& b) { return a.faults > b.faults; });
    DataSize size = {place.data.empty() ? 0 : place.data[0].bytes, near_limit_};
    place.hint = hint_line(place.pattern, place.faults, size);
    const std::set<int>& lines = hint_lines_[place.where.file];
    auto after = lines.upper_bound(place.where.line);
    if (place.where.line && after != lines.begin() && place.where.line - *std::prev(after) <= kHintReach) {
      place.hinted_at = *std::prev(after);
    }
    return std::move(place);
  }

  Analysis result_;
  const Process* process_ = nullptr;
  Symbols* symbols_ = nullptr;
  uint64_t near_limit_ = 0;
  std::map<uint64_t, std::vector<Frame>> stacks_;  // of the current process, by key
  std::map<std::string, Gathered> places_;
  std::map<std::vector<std::string>, KindCounts> folded_;
  std::map<std::string, std::map<std::pair<uint32_t, uint64_t>, uint64_t>> bytes_of_site_;
  std::map<std::string, HintUse> hints_;
  std::map<std::string, std::set<int>> hint_lines_;
  std::set<std::pair<uint32_t, uint32_t>> threads_;
};

}  // namespace

size_t Analysis::places_for(double percent) const {
  uint64_t covered = 0;
  size_t count = 0;
  for (; count < places.size(); count++) {
    if (static_cast<double>(covered) * 100 >= percent * static_cast<double>(faults)) break;
    covered += places[count].total();
  }
  return count;
}

size_t find_place(const std::vector<Frame>& stack, const std::string& program) {
  auto is_own = [&](const Frame& f) { return !is_system_module(f.module, program); };
  auto has_own_line = [&](const Frame& f) { return f.line != 0 && is_own(f) && !is_system_source(f.file); };
  auto found = std::find_if(stack.begin(), stack.end(), has_own_line);
  if (found == stack.end()) found = std::find_if(stack.begin(), stack.end(), is_own);
  return found == stack.end() ? 0 : static_cast<size_t>(found - stack.begin());
}

std::string brief_name(const std::string& name) {
  // Names with brackets or spaces that are not arguments.
  constexpr std::string_view kWhole[] = {"(anonymous namespace)",
                                         "operator()",
                                         "operator<<",
                                         "operator<=>",
                                         "operator<=",
                                         "operator<",
                                         "operator>>",
                                         "operator->",
                                         "operator>=",
                                         "operator>",
                                         "operator "};
  std::string result;
  int depth = 0;
  for (size_t i = 0; i < name.size(); i++) {
    std::string_view rest = std::string_view(name).substr(i);
    auto whole =
        std::find_if(std::begin(kWhole), std::end(kWhole), [&](std::string_view w) { return rest.starts_with(w); });
    char c = name[i];
    if (whole != std::end(kWhole)) {
      if (depth == 0) result += *whole;
      i += whole->size() - 1;
    } else if (c == '<' || c == '{') {
      if (depth++ == 0) result += c;
    } else if (c == '>' || c == '}') {
      if (--depth == 0) result += std::string("..") + c;
    } else if (depth == 0) {
      if (c == '(') break;
      if (c == ' ') result.clear();  // the text so far is the return type
      else result += c;
    }
  }
  return result;
}

std::string short_text(const Frame& frame) {
  std::string function = brief_name(frame.function);
  if (frame.line) return fmt::format("{} ({}:{})", function, base_name(frame.file), frame.line);
  std::string module = base_name(frame.module);
  return module.empty() || function.starts_with(module) ? function : fmt::format("{} ({})", function, module);
}

Result<Analysis> analyze(const Recording& recording) {
  Analyzer analyzer;
  for (const Process& process : recording.processes) {
    if (process.entries.empty() && process.hints.empty()) continue;
    auto symbols = Symbols::open(process);
    if (!symbols.ok()) return symbols.status();
    analyzer.add(process, **symbols);
  }
  return analyzer.finish();
}

}  // namespace farside::trace
