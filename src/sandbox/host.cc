// The isolated process in which a client's functions run: PREFIX/lib/farside/offload_host. The server starts it in new
// namespaces, with the descriptors of protocol.h. It gives up everything else, loads the client's objects, and then
// executes the calls that arrive on the client's connection. Foreign code runs from the loading on (its constructors),
// so nothing that follows protects the server; what is set up before does.
//
// offload_host OBJECTS MEMORY BASE USER WAY
//   OBJECTS  number of descriptors of objects
//   MEMORY   bytes that functions may allocate
//   BASE     address at which the region begins
//   USER     user and group of the namespace that it changes to
//   WAY      "direct": the connection is the client's; "relay": the server's
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "farside/offload.h"
#include "sandbox/call_executor.h"
#include "sandbox/filter.h"
#include "sandbox/host_io.h"
#include "sandbox/isolation.h"
#include "sandbox/protocol.h"

namespace {

using namespace farside::sandbox;

uint64_t bytes_of_objects(int objects) {
  uint64_t bytes = 0;
  for (int i = 0; i < objects; i++) {
    struct stat info = {};
    if (fstat(kFirstObjectFd + i, &info) == 0) bytes += static_cast<uint64_t>(info.st_size);
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fputs("offload_host is started by 'farside serve --offload'\n", stderr);
    return 2;
  }
  int objects = atoi(argv[1]);
  uint64_t memory = strtoull(argv[2], nullptr, 10);
  auto user = static_cast<unsigned>(atoi(argv[4]));
  if (objects < 0 || objects > static_cast<int>(farside::wire::kMaxCallObjects)) return 2;
  // Links libfarside, whose functions clients' code calls.
  if (farside_offload_servers() != 0) return 2;
  static CallExecutor executor(strtoull(argv[3], nullptr, 10),
                               strcmp(argv[5], "direct") == 0);  // too large for a stack
  uint64_t object_bytes = bytes_of_objects(objects);
  uint64_t mapped = executor.map_shared();
  farside::ticks_per_us();  // measures now: no later system call does
  leave_files(objects, object_bytes);
  limit_resources(memory + object_bytes, mapped);
  leave_user(user);
  if ((errno = -install_loading_filter()) != 0) give_up("cannot install a seccomp filter: ");
  executor.load(objects);
  if ((errno = -install_call_filter()) != 0) give_up("cannot install a seccomp filter: ");
  report_loading(0);
  executor.serve();
}
