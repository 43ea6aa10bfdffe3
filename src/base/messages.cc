#include "base/messages.h"

#include <algorithm>
#include <cstring>

namespace farside {

std::string_view message_id(std::string_view format) {
  for (const MessageId& row : kMessageIds) {
    if (format.find(row.key) != format.npos) return row.id;
  }
  return {};
}

size_t append_id(char* text, size_t used, size_t room, std::string_view id) {
  size_t added = id.size() + 3;
  if (id.empty() || room < added) return used;
  used = std::min(used, room - added);
  text[used] = ' ';
  text[used + 1] = '[';
  memcpy(text + used + 2, id.data(), id.size());
  text[used + 2 + id.size()] = ']';
  return used + added;
}

}  // namespace farside
