// What sandbox_test calls, in the process of offload_host. Arguments: a TestArguments.
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "farside/offload.h"
#include "sandbox/test_functions.h"

#include "sandbox/protocol.h"

namespace {

const TestArguments& arguments_of(const void* arguments) { return *static_cast<const TestArguments*>(arguments); }

int store(farside_offload_output* output, uint64_t value) {
  memcpy(output->data, &value, sizeof value);
  output->bytes = sizeof value;
  return 0;
}

int overflow(volatile char* below, uint64_t depth) {
  volatile char page[4096];
  page[0] = *below;
  return depth == 0 ? 0 : overflow(page, depth - 1) + page[0];
}

}  // namespace

#define FUNCTION(name)                                                                                        \
  extern "C" __attribute__((visibility("default"))) int name(                                                 \
      [[maybe_unused]] void* function, [[maybe_unused]] const void* arguments, [[maybe_unused]] size_t bytes, \
      [[maybe_unused]] farside_offload_output* output)

FUNCTION(sum) {
  const TestArguments& a = arguments_of(arguments);
  uint64_t all = 0;
  for (uint64_t i = 0; i < a.count; i++) all += a.words[i];
  return store(output, all);
}

FUNCTION(fill) {
  const TestArguments& a = arguments_of(arguments);
  for (uint64_t i = 0; i < a.count; i++) a.words[i] = a.value + i;
  return store(output, a.count);
}

FUNCTION(count_calls) {
  static uint64_t calls = 0;
  return store(output, ++calls);
}

FUNCTION(fail) {
  memcpy(output->data, "no luck", 7);
  output->bytes = 7;
  return -ERANGE;
}

FUNCTION(call_function) {
  auto twice = reinterpret_cast<uint64_t (*)(uint64_t)>(function);
  return store(output, twice(arguments_of(arguments).value));
}
extern "C" __attribute__((visibility("default"))) uint64_t twice(uint64_t value) { return 2 * value; }

FUNCTION(crash) {
  *static_cast<volatile int*>(nullptr) = 1;
  return 0;
}

FUNCTION(use_all_stack) {
  char bottom = 0;
  return overflow(&bottom, 1 << 20);
}

FUNCTION(call_abort) { abort(); }

FUNCTION(loop) {
  for (volatile bool forever = true; forever;) {}
  return 0;
}

FUNCTION(fork_bomb) {
  for (;;) fork();
}

FUNCTION(connect_somewhere) { return store(output, static_cast<uint64_t>(socket(AF_INET, SOCK_STREAM, 0))); }

FUNCTION(open_file) {
  int fd = open_passwd();
  return fd < 0 ? -errno : store(output, static_cast<uint64_t>(fd));
}

FUNCTION(kill_all) { return store(output, static_cast<uint64_t>(kill(-1, SIGKILL))); }

FUNCTION(leave) { exit(0); }

FUNCTION(allocate_all) {
  uint64_t got = 0;
  for (; got < uint64_t{1} << 40; got += 1 << 20) {
    void* part = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (part == MAP_FAILED) break;
    memset(part, 1, 1 << 20);
  }
  return store(output, got);
}

FUNCTION(map_shared) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return store(output, page == MAP_FAILED);
}

FUNCTION(map_executable) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return store(output, page == MAP_FAILED);
}

// The descriptor of the region, writable, which functions can reach.
FUNCTION(take_region) {
  const TestArguments& a = arguments_of(arguments);
  for (uint64_t at = 0; at < a.count; at += 1 << 20) {
    void* part = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, 5, static_cast<off_t>(at));
    if (part == MAP_FAILED) return -errno;
    memset(part, 1, 1 << 20);
    munmap(part, 1 << 20);
  }
  return store(output, a.count);
}

FUNCTION(make_writable) {
  void* again = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, 4, 0);
  if (again == MAP_FAILED) return -errno;
  return store(output, mprotect(again, 4096, PROT_READ | PROT_WRITE) != 0);
}

// A false reply, as code that has taken over the process may send.
FUNCTION(lie) {
  uint32_t reply[4] = {0, 1, ~0u, 0};
  while (write(farside::sandbox::kConnectionFd, reply, sizeof reply) > 0) {}
  return 0;
}

FUNCTION(throw_and_catch) {
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& thrown) {
    return store(output, strlen(thrown.what()));
  }
}
