// Metrics of this process and of the build, as Prometheus' client libraries name them.
#pragma once
#include "base/exposition.h"

namespace farside::cli {

void append_build_info(Exposition* out);
void append_process_metrics(Exposition* out);

}  // namespace farside::cli
