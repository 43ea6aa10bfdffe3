#include "tools/trace/perf_map.h"

#include <algorithm>
#include <regex>

namespace farside::trace {
namespace {

// Of V8: a function of a script, its file and line. Of the JVM: a method, with its arguments.
const std::regex kScript(R"([A-Za-z]+:[*~^+]?(\S*) (.+):(\d+):\d+)");
const std::regex kMethod(R"((\S+ )?[^ (]+\.[^ (]+\(.*\))");
// What belongs to the runtime, not to the program.
const std::regex kOfRuntime(R"(.* node:.*|(\S+ )?(java|jdk|javax|sun)\..*)");

}  // namespace

PerfMap::PerfMap(std::istream&& map) {
  uint64_t begin = 0, size = 0;
  std::string name;
  while (map >> std::hex >> begin >> size && std::getline(map >> std::ws, name))
    codes_.push_back({begin, begin + size, name});
}

std::optional<Frame> PerfMap::find(uint64_t address, const std::string& program) const {
  auto code =
      std::find_if(codes_.rbegin(), codes_.rend(), [&](auto& c) { return address >= c.begin && address < c.end; });
  if (code == codes_.rend()) return std::nullopt;
  return frame_of_generated(code->name, program);
}

Frame frame_of_generated(const std::string& name, const std::string& program) {
  std::smatch parts;
  bool is_script = std::regex_match(name, parts, kScript);
  bool own = (is_script || std::regex_match(name, kMethod)) && !std::regex_match(name, kOfRuntime);
  std::string module = own ? program : "";
  if (!is_script) return {name, "", 0, module, false, Language::kGenerated};
  std::string function = parts[1].length() ? parts[1].str() : "anonymous";
  return {function, parts[2], std::stoi(parts[3]), module, false, Language::kGenerated};
}

}  // namespace farside::trace
