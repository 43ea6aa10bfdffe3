// Text in SVG pictures. Pure functions.
#pragma once
#include <string>
#include <string_view>

namespace farside {

// For text and attributes. Control characters other than line ends become '?'.
std::string escape_svg(const std::string& text);
// At most `room` bytes, `mark` at the end included where the text is cut. Does not cut within a UTF-8 character. room
// is at least the size of `mark`.
std::string shorten(const std::string& text, size_t room, std::string_view mark);

}  // namespace farside
