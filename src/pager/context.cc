#include "pager/context.h"

#include "base/log.h"

namespace farside::pager {

void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error) {
  die("memory server {} is lost (error {}): it stored {} pages of this program's memory, so the program cannot "
      "continue. Restart it, and check the server's log",
      store->address(), -error, page_count);
}

}  // namespace farside::pager
