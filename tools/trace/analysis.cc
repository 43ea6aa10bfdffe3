#include "tools/trace/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "tools/trace/python.h"

namespace farside::trace {
namespace {

constexpr size_t kMaxStackText = 400'000;  // bytes of all stacks' texts: the outputs have them several times
constexpr int kHintReach = 10;             // maximum distance in lines between a hint and its place

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool starts_with_any(const std::string& text, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](const char* b) { return text.starts_with(b); });
}

bool is_system_module(const std::string& module, const std::string& program) {
  if (module == program) return false;
  if (!python_package_path(module).empty()) return true;
  return module.empty() || module[0] != '/' || starts_with_any(module, {"/lib", "/usr/lib", "/usr/local/lib"});
}

bool is_system_source(const std::string& file) {
  return !python_package_path(file).empty() ||
         starts_with_any(file, {"/usr/include", "/usr/lib", "/usr/local/include"});
}

bool is_python(const Frame& frame) { return frame.language == Language::kPython; }

bool has_own_line(const Frame& frame, const std::string& program) {
  bool own = is_python(frame) || !is_system_module(frame.module, program);
  return frame.line != 0 && own && !is_system_source(frame.file);
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
    return !is_allocator(f) && (is_python(f) || !is_system_module(f.module, program)) && !is_system_source(f.file);
  });
  return found == stack.end() ? stack[at] : *found;
}

// The innermost function of a place, where it is not the place's own.
std::string inner_text(const Frame& frame) {
  if (is_python(frame)) return short_text(frame);
  std::string function = brief_name(frame.function), module = base_name(frame.module);
  return function.starts_with(module) ? module : fmt::format("{} of {}", function, module);
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
    merge_rare_stacks(&result_.stacks, kMaxStackText);
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
    if (stack != process_->stacks.end())
      frames = merge_python(symbols_->stack(stack->second), python_stack(*process_, stack->second));
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
    g.inner[at == 0 ? "" : inner_text(frames[0])] += entry.count;
    for (const auto& site : entry.sites) add_data(g, site);
    folded_[folded(frames)][kind] += entry.count;
    result_.faults += entry.count;
  }

  Gathered& gathered_at(const Frame& where) {
    std::string key =
        fmt::format("{}:{}:{}:{}", where.file, where.line, where.line ? "" : where.function, where.module);
    Gathered& g = places_[key];
    g.place.where = where;
    result_.lines_known |= has_own_line(where, process_->program) || where.language == Language::kGenerated;
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
    while (count > 0) {
      std::string text = short_text(without_offset(frames[--count]));
      if (text != texts.back()) texts.push_back(text);  // a recursion is one frame
    }
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
    place.hint = hint_of(place);
    const std::set<int>& lines = hint_lines_[place.where.file];
    auto after = lines.upper_bound(place.where.line);
    if (place.where.line && after != lines.begin() && place.where.line - *std::prev(after) <= kHintReach) {
      place.hinted_at = *std::prev(after);
    }
    return std::move(place);
  }

  std::string hint_of(const Place& place) const {
    DataSize size = {place.data.empty() ? 0 : place.data[0].bytes, near_limit_};
    switch (place.where.language) {
      case Language::kNative:
        return hint_line(place.pattern, place.faults, size);
      case Language::kPython:
        return python_hint_line(place.pattern, place.where.line);
      case Language::kGenerated:
        return "more near memory: this language has no hints";
    }
    return "";
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

size_t Analysis::places_shown(double percent) const {
  constexpr size_t kPlaces = 10;
  return percent == kTenPlaces ? std::min(kPlaces, places_for(kUsualPercent)) : places_for(percent);
}

void merge_rare_stacks(std::vector<FoldedStack>* stacks, size_t max_text) {
  auto more = [](auto& a, auto& b) { return total_of(a.faults) > total_of(b.faults); };
  std::stable_sort(stacks->begin(), stacks->end(), more);
  size_t text = 0;
  auto rare = std::find_if(stacks->begin(), stacks->end(), [&](const FoldedStack& stack) {
    for (const std::string& frame : stack.frames) text += frame.size();
    return text > max_text;
  });
  if (rare == stacks->end()) return;
  FoldedStack others = {{rare->frames.front(), kRareStacks}, {}};
  for (auto stack = rare; stack != stacks->end(); stack++) {
    for (unsigned kind = 0; kind < kTraceKinds; kind++) others.faults[kind] += stack->faults[kind];
  }
  stacks->erase(rare, stacks->end());
  stacks->push_back(others);
}

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
  auto find = [&](auto is_wanted) { return std::find_if(stack.begin(), stack.end(), is_wanted); };
  auto found = find([&](const Frame& f) { return has_own_line(f, program); });
  if (found == stack.end()) found = find([](const Frame& f) { return is_python(f); });
  if (found == stack.end()) found = find([&](const Frame& f) { return !is_system_module(f.module, program); });
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
  std::string function = is_python(frame) ? frame.function : brief_name(frame.function);
  std::string package = python_package_path(frame.file);
  if (!package.empty()) return fmt::format("{} ({}:{})", function, package, frame.line);
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
