#include "preload/guard/calls/guarded_call.h"

#include "preload/guard/calls/special_calls.h"
#include "preload/guard/calls/syscall_table.h"
#include "preload/guard/calls/transfers.h"

namespace farside::preload {

long guarded_call(const Call& call) {
  long result;
  if (transfer_call(call, &result)) return result;
  if (special_call(call, &result)) return result;
  return table_call(call);
}

}  // namespace farside::preload
