// The arguments of test_functions.cc.
#pragma once
#include <fcntl.h>

#include <cstdint>

struct TestArguments {
  uint64_t* words;
  uint64_t count, value;
};

inline int open_passwd() { return open("/etc/passwd", O_RDONLY); }
