// How the isolated process talks with its server. When the other side is gone, these end the process.
#pragma once
#include <cstddef>

namespace farside::sandbox {

void send_all(int fd, const void* data, size_t bytes);
void receive_all(int fd, void* to, size_t bytes);

// Says once whether the process is ready for calls: a HostReply. The text is text and more, after an error.
void report_loading(int status, const char* text = "", const char* more = "");
// Says that it is not, with the text and errno, and ends the process.
[[noreturn]] void give_up(const char* text);

}  // namespace farside::sandbox
