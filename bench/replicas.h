// `farside bench replicas`: the cost of storing every page twice. The accesses of `bench paging` over one server and
// over two replicas, alternating, over shared memory and tcp.
#pragma once
#include "bench/paging.h"

namespace farside::bench {

// {"machine", "settings", "cells": [{"transport", "workload", "threads", "one_us": summary, "two_us": summary, "ratio":
// summary}]}. A ratio is the time with two replicas divided by the time with one server in the same repetition. The
// caller has no threads.
Result<nlohmann::json> measure_replicas(const PagingSettings& settings);
std::string replicas_text(const nlohmann::json& document);

}  // namespace farside::bench
