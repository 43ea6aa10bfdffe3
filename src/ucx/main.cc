// farside-ucx: the processes that use UCX. Started by ucx/helper.h: farside-ucx MODE TRANSPORTS ARGUMENT.
#include <sys/socket.h>

#include <cstdio>
#include <string_view>

#include "ucx/exporter.h"
#include "ucx/helper.h"
#include "ucx/helper_protocol.h"
#include "ucx/relay.h"
#include "ucx/ucp_worker.h"

#if defined(__SANITIZE_THREAD__)
// UCX synchronizes its threads by code that the sanitizer does not see.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

int main(int count, char** arguments) {
  using namespace farside::ucx;
  std::string_view mode = count == 4 ? arguments[1] : "";
  if (mode == "export") return run_exporter(arguments[2]);
  if (mode == "relay") return run_relay(arguments[2]);
  if (mode == "survey") {
    auto found = describe(arguments[2]);
    return !report_ready(found.status()) || send(kControlFd, found->data(), found->size(), MSG_NOSIGNAL) < 0;
  }
  fputs("farside-ucx is started by farside\n", stderr);
  return 2;
}
