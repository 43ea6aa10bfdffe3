#include "pager/context.h"

#include "base/log.h"

namespace farside::pager {

void die_of_lost_memory(remote::RemoteStore* store, uint64_t page_count, int error) {
  die("memory server {} is lost (error {}): {} pages of this program's memory were there; the program cannot go on. "
      "Restart it, and look at the server's log",
      store->address(), -error, page_count);
}

}  // namespace farside::pager
