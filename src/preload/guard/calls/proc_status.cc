#include "preload/guard/calls/proc_status.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>

#include "base/os.h"
#include "base/service_thread.h"
#include "base/sync.h"
#include "preload/guard/calls/proc_entries.h"

namespace farside::preload {
namespace {

constexpr size_t kMaxBytes = 8192;  // of a text that is changed
std::atomic<bool> g_reads_status{false};

// What the program sees. Its length depends on the number's digits.
struct Text {
  size_t length;
  char data[kMaxBytes];
};

// The last text that was read in part: as with the kernel, what follows is of the same text.
struct Remembered {
  SpinLock lock;  // a handler of the program may interrupt its holder, so it is only tried
  int fd;
  long next;  // position
  Text text;
};
Remembered g_remembered;

// Where the number begins, or nullptr. In stat it is the 20th word; the second one, in brackets, may have spaces.
char* thread_number(char* text, bool is_stat) {
  constexpr char kLabel[] = "\nThreads:\t";
  if (!is_stat) {
    char* line = strstr(text, kLabel);
    return line ? line + sizeof kLabel - 1 : nullptr;
  }
  char* word = strrchr(text, ')');
  for (int i = 2; word && i < 20; i++) word = strchr(word + 1, ' ');
  return word ? word + 1 : nullptr;
}

void remove_own_threads(Text* text, bool is_stat) {
  char* begin = thread_number(text->data, is_stat);
  if (!begin) return;
  unsigned number = 0, farsides = ServiceThread::count();
  char* end = text->data + text->length;
  const char* behind = std::from_chars(begin, end, number).ptr;
  char* to = std::to_chars(begin, end, number > farsides ? number - farsides : 1).ptr;
  memmove(to, behind, static_cast<size_t>(end - behind));
  text->length -= static_cast<size_t>(behind - to);
}

// Called for each read, so it makes a system call only where a number begins.
bool begins_as_status(const iovec& piece, size_t bytes) {
  auto* data = static_cast<const char*>(piece.iov_base);
  bytes = std::min(piece.iov_len, bytes);
  if (bytes > 0 && data[0] != 'N' && (data[0] < '1' || data[0] > '9')) return false;
  char own[16];
  auto length = static_cast<size_t>(fmt::format_to_n(own, sizeof own, "{} (", os::getpid()).out - own);
  return memcmp(data, "Name:", std::min<size_t>(bytes, 5)) == 0 || memcmp(data, own, std::min(bytes, length)) == 0;
}

bool read_text(int fd, bool is_stat, Text* text) {
  long length = os::call(SYS_pread64, fd, text->data, sizeof text->data - 1, 0);
  if (length <= 0 || length == sizeof text->data - 1) return false;
  text->length = static_cast<size_t>(length);
  text->data[length] = 0;
  remove_own_threads(text, is_stat);
  return true;
}

bool recall(int fd, long position, Text* text) {
  if (position == 0 || !g_remembered.lock.try_lock()) return false;
  bool found = g_remembered.fd == fd && g_remembered.next == position;
  if (found) *text = g_remembered.text;
  g_remembered.lock.unlock();
  return found;
}

void remember(int fd, long next, const Text& text) {
  if (!g_remembered.lock.try_lock()) return;
  g_remembered.fd = fd;
  g_remembered.next = next;
  g_remembered.text = text;
  g_remembered.lock.unlock();
}

long store(const iovec* pieces, size_t count, const char* from, size_t bytes) {
  size_t done = 0;
  for (size_t i = 0; i < count && done < bytes; i++) {
    size_t part = std::min(pieces[i].iov_len, bytes - done);
    memcpy(pieces[i].iov_base, from + done, part);
    done += part;
  }
  return static_cast<long>(done);
}

}  // namespace

long read_of_own_status(int fd, long position, const iovec* pieces, size_t count, long bytes) {
  auto read = static_cast<size_t>(bytes);
  if (read > kMaxBytes || (!g_reads_status.load(std::memory_order_relaxed) && !begins_as_status(pieces[0], read)))
    return bytes;
  bool is_stat = is_own_file(fd, "/stat"), of_file = position < 0;
  if (!is_stat && !is_own_file(fd, "/status")) return bytes;
  g_reads_status.store(true);
  if (of_file) position = os::call(SYS_lseek, fd, 0, SEEK_CUR) - bytes;
  Text text;
  if (position < 0 || (!recall(fd, position, &text) && !read_text(fd, is_stat, &text))) return bytes;
  size_t begin = std::min(static_cast<size_t>(position), text.length);
  long done = store(pieces, count, text.data + begin, std::min(text.length - begin, read));
  remember(fd, position + done, text);
  if (of_file) os::call(SYS_lseek, fd, position + done, SEEK_SET);
  return done;
}

}  // namespace farside::preload
