#include "report/svg.h"

namespace farside {

std::string escape_svg(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else if (static_cast<unsigned char>(c) < ' ' && c != '\n') result += '?';
    else result += c;
  }
  return result;
}

std::string shorten(const std::string& text, size_t room, std::string_view mark) {
  if (text.size() <= room) return text;
  size_t end = room - mark.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end--;
  return text.substr(0, end).append(mark);
}

}  // namespace farside
