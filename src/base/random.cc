#include "base/random.h"

#include <sys/syscall.h>

#include <cerrno>

#include "base/log.h"
#include "base/os.h"

namespace farside {

void fill_random(void* to, size_t bytes) {
  long r = -EINTR;
  while (r == -EINTR) r = os::call(SYS_getrandom, to, bytes, 0);
  if (r != static_cast<long>(bytes))
    die("no random numbers for a secret (getrandom: error {}); permit this system call", -r);
}

uint64_t random_u64() {
  uint64_t value;
  fill_random(&value, sizeof value);
  return value;
}

}  // namespace farside
