// Parses the output of Valgrind's tool lackey: a line of text for each access, such as " L 04abc81d,8", after a line
// for its instruction. Lackey reports a locked instruction as a load and then a modification; the reader combines them
// into one write, because it faults as one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace farside::plan {

class LackeyReader {
 public:
  // Calls access(address, bytes, is_write) for each load, store and modification in the text. The text may be split
  // anywhere between calls.
  template <typename Access>
  void read(std::string_view text, Access&& access) {
    while (!text.empty()) {
      const char* end = static_cast<const char*>(memchr(text.data(), '\n', text.size()));
      size_t length = end ? static_cast<size_t>(end - text.data()) : text.size();
      if (kept_ > 0 || !end) {
        keep(text.substr(0, length));
        if (end) read_line({line_, kept_}, access);
        if (end) kept_ = 0;
      } else {
        read_line(text.substr(0, length), access);
      }
      text.remove_prefix(end ? length + 1 : length);
    }
  }

  // To be called after the last text: reports a pending access.
  template <typename Access>
  void finish(Access&& access) {
    if (load_.bytes > 0) access(load_.address, load_.bytes, false);
    load_ = {};
  }

  uint64_t instructions() const { return instructions_; }

 private:
  static constexpr size_t kLongest = 63;  // longer lines are not lackey's

  template <typename Access>
  void read_line(std::string_view line, Access&& access) {
    if (line.starts_with('I')) {
      instructions_++;
      finish(access);
    }
    Load now;
    if (line.size() <= 5 || line[0] != ' ' || line[2] != ' ' || !parse(line.substr(3), &now)) return;
    if (line[1] == 'L') {
      finish(access);
      load_ = now;
    } else if (line[1] == 'S' || line[1] == 'M') {
      if (load_.address == now.address) load_ = {};
      finish(access);
      access(now.address, now.bytes, true);
    }
  }

  void keep(std::string_view part) {
    size_t fits = std::min(part.size(), kLongest - kept_);
    memcpy(line_ + kept_, part.data(), fits);
    kept_ += fits;
  }

  struct Load {
    uint64_t address = 0;
    unsigned bytes = 0;
  };
  static bool parse(std::string_view text, Load* load);

  Load load_;  // of the current instruction, not yet reported
  char line_[kLongest];
  size_t kept_ = 0;  // bytes kept of an incomplete line
  uint64_t instructions_ = 0;
};

inline bool LackeyReader::parse(std::string_view text, Load* load) {
  size_t i = 0;
  for (; i < text.size() && text[i] != ','; i++) {
    auto digit = static_cast<unsigned>(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    if (digit > 15) return false;
    load->address = load->address << 4 | digit;
  }
  for (i++; i < text.size() && text[i] >= '0' && text[i] <= '9'; i++) {
    load->bytes = load->bytes * 10 + static_cast<unsigned>(text[i] - '0');
  }
  return load->bytes > 0;
}

}  // namespace farside::plan
