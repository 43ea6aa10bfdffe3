// What the files of the program `offload` share: words in far memory, functions that are called, checks.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <farside/offload.hpp>

namespace offload = farside::offload;

inline constexpr size_t kWords = 4 << 20;  // 32 MiB

// Of the cases of which every call is to run on a server.
inline offload::mode where() { return getenv("OFFLOAD_ON_SERVER") ? offload::mode::server : offload::mode::automatic; }

inline uint64_t* far_words() {
  void* memory = mmap(nullptr, kWords * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* words = static_cast<uint64_t*>(memory);
  for (size_t i = 0; i < kWords; i++) words[i] = i * 2654435761u % 1000;
  return words;
}

struct Column {
  const uint64_t* first;
  size_t count;
};
inline uint64_t sum(const Column& column) {
  uint64_t all = 0;
  for (size_t i = 0; i < column.count; i++) all += column.first[i];
  return all;
}

template <typename R>
bool check(const offload::result<R>& result, const char* what) {
  if (result) fprintf(stderr, "%s: %s\n", what, result.on_server() ? "server" : "local");
  else fprintf(stderr, "%s: error %d: %s\n", what, result.error().code, result.error().text.c_str());
  return static_cast<bool>(result);
}

// The cases that are in files of their own: offload_containers.cc, offload_owners.cc.
namespace cases {
void map();
void algorithms();
void containers();
void owners();
}  // namespace cases
