#include "pager/shared/far_access.h"

#include "base/log.h"

namespace farside::pager {

void die_of_lost_memory(remote::RemoteStore* store, int error) {
  die("memory server {} is lost (error {}): pages of this program's memory are stored there, so the program cannot "
      "continue. Restart it, and check the server's log",
      store->address(), -error);
}

}  // namespace farside::pager
